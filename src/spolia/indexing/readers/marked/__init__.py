"""Texts with marks in them: Markdown, reST, AsciiDoc, LaTeX, source code."""
