"""Archives: what stands in them is read as blobs of their own."""
