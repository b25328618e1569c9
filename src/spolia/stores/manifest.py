"""What a node group was built with: other parts would give nodes that do not fit to those that are there."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from spolia.errors import ManifestMismatch, SpoliaError, StoreCorrupt
from spolia.stores.analysis import Analyzer
from spolia.types import Value


@dataclass(frozen=True)
class Manifest(Value):
    """The parts that a node group was built with.

    Args:
        group: the node group's name.
        splitter: the splitter, as its `repr`.
        reader: the versions of the readers.
        analyzer: how texts become terms.
        embedder: name of the embedder, with the hash of its weights; empty for none.
        dimension: numbers in a vector.

    >>> read(written(Manifest("chunk", "Whole()", "1"))) == Manifest("chunk", "Whole()", "1")
    True
    """

    group: str
    splitter: str = ""
    reader: str = ""
    analyzer: Analyzer = field(default_factory=Analyzer)
    embedder: str = ""
    dimension: int = 0

    def differences(self, other: Manifest) -> tuple[str, ...]:
        """Each part that differs, with both sides."""
        pairs = ((f.name, getattr(self, f.name), getattr(other, f.name)) for f in fields(self))
        return tuple(f"{name}: {mine!r} there, {yours!r} here" for name, mine, yours in pairs if mine != yours)


def refuse_other(there: Manifest, here: Manifest) -> None:
    """Raise `ManifestMismatch`, naming both sides, unless the two are equal."""
    if there != here:
        raise ManifestMismatch(
            f"Group {there.group!r} of the store was built with other parts: {'; '.join(there.differences(here))}. "
            "Write the parts that are there, name another store, or rebuild the group: "
            "writer.define(group, manifest, rebuild=True), then index everything again."
        )


def written(manifest: Manifest) -> str:
    """A manifest as JSON."""
    return json.dumps(asdict(manifest), ensure_ascii=False, sort_keys=True)


def read(text: str) -> Manifest:
    """The manifest that was written."""
    try:
        return of(json.loads(text))
    except ValueError as error:
        raise _unreadable(text, error) from error


def of(found: dict[str, Any]) -> Manifest:
    """The manifest that a JSON object describes."""
    try:
        parts: dict[str, Any] = found["analyzer"]
        return Manifest(**{**found, "analyzer": Analyzer(**parts)})
    except (KeyError, TypeError, SpoliaError) as error:
        raise _unreadable(found, error) from error


def _unreadable(found: object, error: Exception) -> StoreCorrupt:
    return StoreCorrupt(
        f"A manifest of the store cannot be understood: {found!r} ({error}). "
        "Rebuild the group: writer.define(group, manifest, rebuild=True), then index everything again."
    )
