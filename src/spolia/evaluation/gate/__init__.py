"""A flow against what it was: has it become worse, on which questions, and what has changed since."""
