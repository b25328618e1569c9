"""Vectors of the tokens of nodes, kept beside a store."""
