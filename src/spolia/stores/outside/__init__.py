"""Databases and graphs of the user, beside the store: they are asked, and never written."""
