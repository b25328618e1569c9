"""A wind tunnel for flows: readers that answer from gold as far as their prompts hold it, and invented worlds."""
