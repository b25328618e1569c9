"""Experiments: flows are asked, and their answers stored and scored."""
