"""How data sets are written: one file for each form, recognised by content."""
