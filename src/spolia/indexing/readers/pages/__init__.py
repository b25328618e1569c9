"""What a page of a PDF is made of: lines, rules, tables, pictures, notes; and in which order it is read."""
