"""From a query to better ones: more of them, another text, another vector, a filter, a statement for a database."""
