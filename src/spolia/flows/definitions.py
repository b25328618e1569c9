"""Definitions of node groups as files, written like flows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from spolia.errors import FlowFileError
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


def load_named(
    name: str,
    source: str | Path,
    given: Mapping[str, Any] | None = None,
    operators: Iterable[Operator[Any, Any] | type] = (),
) -> Definition:
    """What a file says of one group, whether it says nothing else or names several; see `load_definition`.

    >>> load_named("small", "small: {transform: Sentences}") == load_named("small", "transform: Sentences")
    True
    """
    try:
        return load_definition(source, given, operators)
    except FlowFileError as error:
        several: dict[str, Definition] = {}
        with suppress(FlowFileError):
            several = load_definitions(source, given, operators)
        if not several:
            raise
        if name not in several:
            raise FlowFileError(f"{source} defines {', '.join(several)}, not {name}. Write one of these.") from error
        return several[name]
