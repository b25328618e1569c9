"""Answers that rest on each passage by the weight of its score (REPLUG)."""
