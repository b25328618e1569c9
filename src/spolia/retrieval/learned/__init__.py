"""Ranking learned from questions: candidates from links and shared names, their features, a linear score."""

from spolia.core.public_names import submodules

__getattr__ = submodules(__name__)
