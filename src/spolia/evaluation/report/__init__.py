"""A report for people: tables, Markdown, one page of HTML with plots and every question."""

from spolia.core.public_names import submodules

__getattr__ = submodules(__name__)
