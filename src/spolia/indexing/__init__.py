"""Documents in: read, cut into nodes, kept in step with a folder."""
