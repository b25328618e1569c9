"""Texts with markup: Markdown, reStructuredText, AsciiDoc, LaTeX, source code."""
