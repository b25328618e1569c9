"""From a ranking to another ranking of the same query."""
