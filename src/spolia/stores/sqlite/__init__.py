"""A store whose truth is an SQLite file in a folder."""
