"""Measures of one result against its gold: values that print as they are written, one file each."""
