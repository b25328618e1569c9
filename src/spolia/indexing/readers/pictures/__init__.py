"""Pictures: their letters, recognised, and their bytes."""
