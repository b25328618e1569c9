"""Which hits stay: by scores, likeness, time, or the verdict of a language model."""
