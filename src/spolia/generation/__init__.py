"""From a ranking to an answer."""
