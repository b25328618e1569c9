"""From a query to a ranking."""
