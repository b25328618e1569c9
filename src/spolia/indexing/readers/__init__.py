"""From the bytes of a file to a document: one file for each format."""
