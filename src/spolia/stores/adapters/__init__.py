"""Vector databases beside the store, one leaf module each. Loading one does not import the database's package."""
