"""Search along links between nodes: what is like what was found, speaks of the same, or stands beside it."""
