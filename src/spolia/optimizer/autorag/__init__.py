"""AutoRAG's configuration and results, read as spaces of flows."""
