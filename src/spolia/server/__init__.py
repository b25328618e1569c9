"""Flows served over HTTP: routes, keys, limits. The extra `server` brings what its modules import."""
