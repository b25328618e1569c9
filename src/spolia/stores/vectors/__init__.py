"""Search by vectors: segment files, exact and approximate search, graphs and databases beside them."""
