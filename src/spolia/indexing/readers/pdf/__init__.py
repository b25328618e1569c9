"""PDF: lines, rules, tables, pictures and notes of a page, and the order in which they are read."""
