"""What an answer says, against the answers of the gold."""
