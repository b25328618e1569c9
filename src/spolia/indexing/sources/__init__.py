"""Where documents come from beside folders: web pages, file systems, databases, HTTP APIs."""
