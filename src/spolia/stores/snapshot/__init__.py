"""A store as it was published once: read, and searched with access and filters."""
