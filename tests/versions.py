"""Which source each version of an operator has: `python -m tests.versions` records it, `make versions` calls that.

An operator's version is part of the cache key. A result computed by other code under the same version would be taken
for this code's result, so a test compares the source with what was recorded when the version was last counted up.
"""

from __future__ import annotations

import json
import sys
from dataclasses import is_dataclass
from importlib import import_module
from pathlib import Path

from spolia.core.fingerprint import definition
from spolia.core.fingerprint.definition import definition_digest
from tests.tree import modules, operators

RECORD = Path(__file__).parent / "versions.json"
FORMER = Path(definition.__file__).with_name("former_digests.json")
Recorded = dict[str, tuple[int, str]]


def sources() -> Recorded:
    """Version and source hash of every operator by id."""
    return {cls.type_id(): (cls.version, definition_digest(cls).hex()) for cls in operators()}


def read_record() -> Recorded:
    """What was recorded."""
    if not RECORD.exists():
        return {}
    return {name: (version, source) for name, (version, source) in json.loads(RECORD.read_text("utf-8")).items()}


def stale(now: Recorded, recorded_versions: Recorded) -> list[str]:
    """Operators whose source has changed while their version has not."""
    common = [name for name in now if name in recorded_versions]
    return [
        name
        for name in common
        if now[name][0] == recorded_versions[name][0] and now[name][1] != recorded_versions[name][1]
    ]


def refresh(now: Recorded, recorded_versions: Recorded) -> Recorded:
    """What to record: new operators and counted-up versions; refused while any is stale."""
    if names := stale(now, recorded_versions):
        raise SystemExit(
            f"The source of {', '.join(names)} has changed and the version has not. Count `version` up where the "
            "result for the same fields and value may differ, also if only sometimes. Nothing was recorded."
        )
    return dict(sorted(now.items()))


def digests() -> dict[str, str]:
    """Return the digest of each class whose code belongs to keys of stores, caches and studies."""
    values = (value for name in modules() for value in vars(import_module(name)).values())
    own = {cls for cls in values if isinstance(cls, type) and cls.__module__.startswith("spolia.")}
    return {f"{cls.__module__}.{cls.__qualname__}": definition_digest(cls).hex() for cls in own if is_dataclass(cls)}


def record_equal(former_digests: dict[str, str]) -> int:
    """Let digests of moved or renamed code stand for those of `former_digests`, which an earlier commit printed."""
    former = json.loads(FORMER.read_text("utf-8"))
    changed = {new: former_digests[name] for name, new in digests().items() if former_digests.get(name, new) != new}
    text = json.dumps(dict(sorted((former | changed).items())), indent=0)
    FORMER.write_text(f"{text}\n", "utf-8")
    return len(changed)


def main() -> None:
    """Record the sources as they are.

    `--digests` prints those of all classes; `--equal FILE` records that the code of now gives the same results as the
    commit that printed FILE.
    """
    if "--digests" in sys.argv:
        sys.stdout.write(json.dumps(digests()))
        return
    if "--equal" in sys.argv:
        former_digests = json.loads(Path(sys.argv[sys.argv.index("--equal") + 1]).read_text("utf-8"))
        sys.stdout.write(f"{record_equal(former_digests)} digests stand for former ones.\n")
        return
    recorded_versions = refresh(sources(), read_record())
    lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(list(pair))}" for name, pair in recorded_versions.items())
    RECORD.write_text(f"{{\n{lines}\n}}\n", "utf-8")
    sys.stdout.write(f"{len(recorded_versions)} operators recorded in {RECORD.name}.\n")


if __name__ == "__main__":
    main()
