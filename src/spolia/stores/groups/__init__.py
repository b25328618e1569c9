"""Building node groups: definitions, nodes, vectors, storage."""
