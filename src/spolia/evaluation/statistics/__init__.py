"""How sure a number is, and whether a difference is shown: intervals, paired tests, corrections for many of them."""
