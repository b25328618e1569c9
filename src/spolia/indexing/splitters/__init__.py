"""Splitters: operators that cut a text into pieces, each in a file of its own."""
