"""Names of node groups as they are written on the command line."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from spolia.errors import GroupError
from spolia.stores.groups.definitions import meant, unknown
from spolia.stores.manifest import BUILT_IN

if TYPE_CHECKING:
    from spolia.cli.user_modules import UserModules
    from spolia.stores.corpus import Corpus
    from spolia.stores.snapshot.snapshot import Snapshot


def refuse_unknown(corpus: "Corpus", names: Iterable[str], mine: "UserModules") -> None:
    """Refuse groups that the store does not have, nobody defines, and that are not built in."""
    there = {*corpus.latest().manifests, *mine.groups}
    for name in names:
        if name not in there and name not in BUILT_IN:
            raise unknown(name, corpus.path, there)


def refuse_unbuilt(snapshot: "Snapshot", name: str) -> None:
    """Refuse a group that the store does not have, though it may be built in."""
    there, store = list(snapshot.manifests), snapshot.opened.store
    if name in there:
        return
    if name in BUILT_IN:
        raise GroupError(
            f"Group {name!r} is not built in {store} yet. Write: spolia groups build {name} --store {store}"
        )
    raise GroupError(
        f"There is no node group {name!r} in {store}.{meant(name, [*there, *BUILT_IN])} It has: {', '.join(there)}; "
        f"`spolia groups list` also tells what can be built."
    )


def refuse_undroppable(snapshot: "Snapshot", name: str) -> None:
    """Refuse to drop a group that the store does not have."""
    if name not in snapshot.manifests and name in BUILT_IN:
        raise GroupError(f"Group {name!r} is not built in {snapshot.opened.store}: there is nothing to drop.")
    refuse_unbuilt(snapshot, name)
