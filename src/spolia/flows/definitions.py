"""Definitions of node groups as files, written like flows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from spolia.flows.files import decoded
from spolia.operator import Operator
from spolia.stores.definition import Definition


def load_definition(
    source: str | Path,
    given: Mapping[str, Any] | None = None,
    operators: Iterable[Operator[Any, Any] | type] = (),
) -> Definition:
    """What a file says that a node group is made of. Nothing that it names is imported, and nothing is run or opened.

    Args:
        source: a path, or the text itself.
        given: models and the like by the names that the file uses: `{use: name}`.
        operators: transforms that are neither built in nor installed: instances or classes.

    Raises:
        FlowFileError: the file cannot be read, or describes no group; says the line and what to write.

    >>> load_definition("{transform: {SlidingWindow: {size: 64}}, parent: page}").parent
    'page'
    """
    expected = "what the group is made of, for example {transform: Sentences}"
    found: Definition = decoded(source, Definition, given, operators, expected)
    return found


def load_definitions(
    source: str | Path,
    given: Mapping[str, Any] | None = None,
    operators: Iterable[Operator[Any, Any] | type] = (),
) -> dict[str, Definition]:
    """What a file says that node groups are made of, by their names; see `load_definition`.

    >>> list(load_definitions("small: {transform: Sentences}"))
    ['small']
    """
    expected = "groups by name, for example small: {transform: Sentences, parent: chunk}"
    found: dict[str, Definition] = decoded(source, dict[str, Definition], given, operators, expected)
    return found
