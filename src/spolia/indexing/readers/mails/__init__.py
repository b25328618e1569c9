"""Mails and boxes of them."""
