"""Flow files."""
