"""Measures: values that print as they are written (`nDCG@10`)."""
