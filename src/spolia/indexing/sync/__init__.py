"""A run of sync: what has changed is found, read ahead, cut, embedded and stored batch by batch."""
