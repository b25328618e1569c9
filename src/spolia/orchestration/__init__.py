"""What decides and what merges: routers, judges, fusion."""
