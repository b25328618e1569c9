"""What trees of groups are made of: sections by headings and by meaning, summaries without a model, metadata."""
