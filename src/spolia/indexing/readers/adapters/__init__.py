"""Libraries that read many formats, behind the same protocol; each is an extra of its own and read on request."""
