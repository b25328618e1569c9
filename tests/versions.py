"""Which source each version of an operator has: `python -m tests.versions` records it, `make versions` calls that.

An operator's version is part of the cache key. A result computed by other code under the same version would be taken
for this code's result, so a test compares the source with what was recorded when the version was last counted up.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from spolia.core.fingerprint.definition import definition_digest
from tests.tree import operators

RECORD = Path(__file__).parent / "versions.json"
Recorded = dict[str, tuple[int, str]]


def sources() -> Recorded:
    """Version and source hash of every operator by id."""
    return {cls.type_id(): (cls.version, definition_digest(cls).hex()) for cls in operators()}


def recorded() -> Recorded:
    """What was recorded."""
    if not RECORD.exists():
        return {}
    return {name: (version, source) for name, (version, source) in json.loads(RECORD.read_text("utf-8")).items()}


def stale(now: Recorded, before: Recorded) -> list[str]:
    """Operators whose source has changed while their version has not."""
    known = [name for name in now if name in before]
    return [name for name in known if now[name][0] == before[name][0] and now[name][1] != before[name][1]]


def refresh(now: Recorded, before: Recorded) -> Recorded:
    """What to record: new operators and counted-up versions; refused while any is stale."""
    if names := stale(now, before):
        raise SystemExit(
            f"The source of {', '.join(names)} has changed and the version has not. Count `version` up where the "
            "result for the same fields and value may differ, also if only sometimes. Nothing was recorded."
        )
    return dict(sorted(now.items()))


def main() -> None:
    """Record the sources as they are."""
    kept = refresh(sources(), recorded())
    lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(list(pair))}" for name, pair in kept.items())
    RECORD.write_text(f"{{\n{lines}\n}}\n", "utf-8")
    sys.stdout.write(f"{len(kept)} operators recorded in {RECORD.name}.\n")


if __name__ == "__main__":
    main()
