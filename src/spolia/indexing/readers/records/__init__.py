"""Rows, values and trees: CSV, JSON, XML, notebooks."""
