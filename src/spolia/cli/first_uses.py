"""Groups that were built because somebody searched them first, and what could not be made of which documents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spolia.cli.plain import one_line

if TYPE_CHECKING:
    from spolia.cli.screen import Screen
    from spolia.stores.corpus import Corpus
    from spolia.stores.tables.rows import Unmade

SHOWN = 5


class FirstUses:
    """What a command builds while it searches.

    Args:
        corpus: the store, before.

    Attributes:
        built: number of nodes by group.
        unmade: what the new groups lack.
    """

    def __init__(self, corpus: Corpus) -> None:
        self._corpus, self._before = corpus, frozenset(corpus.latest().indexes)
        self.built: dict[str, int] = {}
        self.unmade: list[Unmade] = []

    def look(self) -> None:
        """See what is there by now."""
        snapshot = self._corpus.latest()
        new = snapshot.indexes.keys() - self._before
        if new:
            counts = dict(snapshot.stats().nodes)
            self.built = {name: counts.get(name, 0) for name in sorted(new)}
            self.unmade = [lack for lack in snapshot.unmade() if lack.group in new]

    def tell(self, screen: Screen) -> None:
        """Say what was built, and what failed."""
        for name, nodes in self.built.items():
            screen.say(f"Group {name} was built, since this is its first use: {nodes} nodes.")
        for lack in self.unmade[:SHOWN]:
            screen.say(f"not in {lack.group}: {one_line(lack.uri)}  {one_line(lack.reason, 300)}", "yellow")
        if len(self.unmade) > SHOWN:
            more = len(self.unmade) - SHOWN
            screen.say(f"… and {more} more; all: spolia docs report --store {self._corpus.path}", "yellow")

    def data(self) -> dict[str, Any]:
        """As plain data."""
        from spolia.cli.index import unmade_data

        return {"built": self.built, "unmade": unmade_data(self.unmade)} if self.built else {}
