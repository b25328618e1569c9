"""Ranking learned from questions: candidates from links and shared names, their features, a linear score."""
