"""Spolia."""
