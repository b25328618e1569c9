"""A store whose truth is a schema of a PostgreSQL database, with pgvector for its vectors."""
