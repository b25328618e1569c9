"""Published methods, one file each, and flows as files."""
