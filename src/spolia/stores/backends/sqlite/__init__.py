"""A store in a folder: the truth in SQLite's file, everything derived beside it."""
