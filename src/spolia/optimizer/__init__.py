"""Tuning: the best flow of a space on your own questions, within a budget, with an honest report."""
