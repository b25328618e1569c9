"""Where documents, nodes, vectors and indexes are kept, and how they are found again."""
