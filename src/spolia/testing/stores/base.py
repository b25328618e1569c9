"""What all tests of a store have in common: where one is made."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from spolia.stores.corpus import Corpus
from spolia.stores.opened import forget
from spolia.testing.stores.shelf import Entry, fill

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from spolia.errors import SpoliaError


class Contract:
    """Base of the tests. `place` is an empty folder of the test, given by pytest's `tmp_path`."""

    def address(self, place: Path) -> str:
        """Of a store that is not there yet: another one for each place, the same for the same."""
        raise NotImplementedError

    @contextmanager
    def store(self, place: Path, shelf: Sequence[Entry] | None = None) -> Iterator[Corpus]:
        """A store with these entries as its first generation; None for no store."""
        corpus = Corpus(self.address(place))
        try:
            yield corpus if shelf is None else fill(corpus, shelf)
        finally:
            forget(corpus.truth)


def refused(kind: type[SpoliaError], call: Callable[[], object]) -> str:
    """What is said when a call is refused by an error of this kind, and no other."""
    said = None
    try:
        call()
    except kind as error:
        said = str(error)
    assert said is not None, f"no {kind.__name__} was raised"
    return said
