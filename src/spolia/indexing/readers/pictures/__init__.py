"""Readers of pictures: recognised text, descriptions and bytes."""
