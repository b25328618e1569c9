"""The one way out: every HTTP request of this package, bounded in time and size, to allowed addresses."""
