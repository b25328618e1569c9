"""What a language model says about a result, and how far it can be believed."""
