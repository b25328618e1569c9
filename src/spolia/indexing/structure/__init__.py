"""Transforms for trees of groups: sections by headings or meaning, summaries without a model, metadata."""
