"""What a question took: tokens, calls, passages."""
