"""Readers in processes of their own: what a hostile file does there ends there."""
