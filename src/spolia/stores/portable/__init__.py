"""A store as one portable file: written, and read again."""
