"""Transforms that are no splitters: plain functions, questions to language models, rules for entities."""
