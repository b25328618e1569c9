"""What an answer states, held against passages."""
