"""Models that run on this machine with torch and transformers, which are the extra `local`."""
