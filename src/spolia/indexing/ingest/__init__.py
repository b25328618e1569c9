"""The sync run: what has changed is read ahead, prepared without a lock, committed batch by batch."""
