"""How data sets are written: one file for each form, recognised by looking at what is there."""
