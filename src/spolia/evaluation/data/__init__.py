"""Questions, passages and gold answers."""
