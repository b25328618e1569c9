"""Who may read what: reader lists, and the nodes that may be found."""
