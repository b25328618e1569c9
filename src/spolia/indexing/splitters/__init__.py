"""Splitters: the transforms that cut a text into pieces, each an operator of a file of its own."""
