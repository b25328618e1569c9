"""A store in a folder: rows in SQLite's file, everything derived beside it."""
