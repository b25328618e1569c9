"""Whether a flow knows what it cannot answer."""
