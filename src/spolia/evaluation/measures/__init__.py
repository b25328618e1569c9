"""Measures: values that print as they are written (`nDCG@10`), one file each.

Of the passages found here, of the words of an answer in `answers`, by a language model in `judged`, of what a flow
would rather not answer in `abstention`, of what a run recorded in `costs`.
"""
