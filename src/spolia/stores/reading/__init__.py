"""What a snapshot looks up: which nodes are allowed, their metadata, their relatives."""
