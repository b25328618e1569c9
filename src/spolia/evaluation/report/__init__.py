"""A report for people: tables, Markdown, one page of HTML with plots and every question."""
