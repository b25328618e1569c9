"""Names of groups that nobody defines; of a misspelt one the nearest is told."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches

from spolia.errors import GroupError
from spolia.stores.defined import BUILT_IN
from spolia.stores.definition import MAIN


def unknown(name: str, store: object, there: Iterable[str]) -> GroupError:
    """What to raise for a group that a store does not have, nobody defines, and that is not built in.

    Args:
        there: the groups that the store has or that are defined.

    >>> print(unknown("sentnce", "notes.spolia", ["chunk"]))  # doctest: +ELLIPSIS
    There is no node group 'sentnce' in notes.spolia, ... Did you mean sentence? There are chunk, coarse, ...
    """
    known = sorted({*there, *BUILT_IN})
    if name == MAIN:
        return GroupError(
            f"{store} has no node group {name!r}, into which documents are put. Write: spolia index FOLDER --store "
            f"{store}, in Python sync(FOLDER, corpus). There are {', '.join(known)}."
        )
    return GroupError(
        f"There is no node group {name!r} in {store}, and none is built in by this name.{meant(name, known)} There are "
        f"{', '.join(known)}. One of your own: corpus.group({name!r}, Definition(...)), which the store keeps once "
        f"it is built; on the command line spolia groups add {name} --from FILE, or spolia groups build {name} --known "
        "FILE.py."
    )


def meant(name: str, there: Sequence[str]) -> str:
    """The nearest of some names as a question, with a blank before it; nothing where none is near."""
    return "".join(f" Did you mean {found}?" for found in get_close_matches(name, there, 1))
