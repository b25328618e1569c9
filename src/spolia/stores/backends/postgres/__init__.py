"""A store in a schema of PostgreSQL."""
