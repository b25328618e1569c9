"""The truth as tables: rows, statements, changes and publications, the same in SQLite and PostgreSQL."""
