"""Hits with less text in them, or one text in their place; citations go on pointing to what was found."""
