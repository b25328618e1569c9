"""Search on the web."""
