"""Names of node groups as they are written on the command line; of a misspelt one the nearest is told."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING

from spolia.errors import GroupError
from spolia.stores.defined import BUILT_IN

if TYPE_CHECKING:
    from spolia.cli.own import Own
    from spolia.stores.corpus import Corpus
    from spolia.stores.snapshot import Snapshot


def refuse_unknown(corpus: Corpus, names: Iterable[str], mine: Own) -> None:
    """Refuse groups that the store does not have, nobody defines, and that are not built in."""
    there = list(dict.fromkeys([*corpus.latest().manifests, *mine.groups, *BUILT_IN]))
    for name in names:
        if name not in there:
            raise GroupError(
                f"There is no node group {name!r} in {corpus.path}, and none is built in by this name."
                f"{_meant(name, there)} There are {', '.join(there)}. One of your own: spolia groups add {name} --from "
                f"FILE, or spolia groups build {name} --known FILE.py, with --store {corpus.path}."
            )


def refuse_unbuilt(snapshot: Snapshot, name: str) -> None:
    """Refuse a group that the store does not have, though it may be built in."""
    there, store = list(snapshot.manifests), snapshot.opened.store
    if name in there:
        return
    if name in BUILT_IN:
        raise GroupError(
            f"Group {name!r} is not built in {store} yet. Write: spolia groups build {name} --store {store}"
        )
    raise GroupError(
        f"There is no node group {name!r} in {store}.{_meant(name, [*there, *BUILT_IN])} It has: {', '.join(there)}; "
        f"`spolia groups list` also tells what can be built."
    )


def _meant(name: str, there: Sequence[str]) -> str:
    return "".join(f" Did you mean {found}?" for found in get_close_matches(name, there, 1))
