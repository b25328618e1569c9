"""The portable form of a store: one ZIP file with what is true at one generation, and a checksum of all in it.

| member | holds |
|---|---|
| `contents.json` | version, declared fields, manifests; of every other member rows, bytes and BLAKE2b |
| `documents.jsonl` | documents in the order of their keys, with its reader list's number, groups it lacks, pictures |
| `sources.jsonl` | what the documents were read from, by uri |
| `cursors.jsonl` | how far the sources were read that were not read further since that generation |
| `nodes/G.jsonl` | the nodes of group number G in the order of their keys |
| `vectors/G-E.f32` | their vectors by the group's embedding number E: float32, little endian, one row for each node |
| `vectors/G-E.sparse` | sparse ones: for each node its entries n (uint32), n terms (int32), n weights (float32) |
| `readers.jsonl` | the reader lists from number 1 on; 0 is everybody |

The BLAKE2b of `contents.json` is the file's comment. Nothing in it is a path, nothing is executed, and what is derived
is left out: it is built again. Two exports of the same content are the same bytes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any

from spolia.errors import SpoliaError, StoreCorrupt, StoreTooNew
from spolia.filters import Schema
from spolia.stores.manifest import GroupEmbedding, Manifest, of
from spolia.stores.tables.schema import read_schema, written_schema
from spolia.types import Value

VERSION = 3
KIND = "spolia export"
CONTENTS, DOCUMENTS, SOURCES, READERS = "contents.json", "documents.jsonl", "sources.jsonl", "readers.jsonl"
CURSORS = "cursors.jsonl"
"""Of sources; exports of version 1 have none."""
CHECKSUM_BYTES, COUNT_BYTES = 32, 4


def nodes_of(group: int) -> str:
    """The member with the nodes of a group."""
    return f"nodes/{group}.jsonl"


def vectors_of(group: int, number: int, how: GroupEmbedding) -> str:
    """The member with the vectors of a group by one of its embeddings."""
    return f"vectors/{group}-{number}.{'sparse' if how.is_sparse else 'f32'}"


def checksum(data: bytes = b"") -> blake2b:
    """The checksum of a member."""
    return blake2b(data, digest_size=CHECKSUM_BYTES)


@dataclass(frozen=True)
class Member(Value):
    """What is said of a member.

    Args:
        rows: lines, or vectors.
        bytes: its size, uncompressed.
        blake2b: its checksum, in hexadecimal digits.
    """

    rows: int
    bytes: int
    blake2b: str


@dataclass(frozen=True)
class Contents(Value):
    """What is in an exported file.

    Args:
        schema: the declared fields.
        manifests: of the groups, each after those that it is made from.
        members: by name.
    """

    schema: Schema = field(default_factory=Schema)
    manifests: tuple[Manifest, ...] = ()
    members: Mapping[str, Member] = field(default_factory=dict)

    @property
    def documents(self) -> int:
        """How many documents there are."""
        return self.members[DOCUMENTS].rows

    @property
    def sources(self) -> int:
        """How many sources there are."""
        return self.members[SOURCES].rows

    @property
    def nodes(self) -> dict[str, int]:
        """How many nodes there are, by group."""
        return {m.group: self.members[nodes_of(number)].rows for number, m in enumerate(self.manifests)}

    @property
    def vectors(self) -> int:
        """How many vectors there are."""
        return sum(member.rows for name, member in self.members.items() if name.startswith("vectors/"))

    @property
    def expected(self) -> set[str]:
        """The names of the members that there must be."""
        found = {DOCUMENTS, SOURCES, READERS, CURSORS}
        for group, manifest in enumerate(self.manifests):
            found |= {nodes_of(group), *(vectors_of(group, *one) for one in enumerate(manifest.embeddings))}
        return found

    @property
    def written(self) -> bytes:
        """As JSON."""
        said = {
            "kind": KIND,
            "version": VERSION,
            "fields": json.loads(written_schema(self.schema) or "[]"),
            "manifests": [asdict(manifest) for manifest in self.manifests],
            "members": {name: asdict(member) for name, member in sorted(self.members.items())},
        }
        return json.dumps(said, ensure_ascii=False, indent=1, sort_keys=True).encode()


def contents_of(path: Path, data: bytes) -> Contents:
    """What the text of `contents.json` says.

    Raises:
        StoreTooNew: a newer version wrote it.
        StoreCorrupt: it cannot be understood.
    """
    try:
        said: dict[str, Any] = json.loads(data)
        if said["kind"] != KIND:
            raise ValueError(f"its kind is {said['kind']!r}")
        _refuse_newer(path, said["version"])
        members = {str(name): Member(**member) for name, member in said["members"].items()}
        found = Contents(read_schema(json.dumps(said["fields"])), tuple(map(of, said["manifests"])), members)
        _refuse_odd(found)
    except StoreTooNew:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, SpoliaError) as error:
        raise damaged(path, f"{CONTENTS} cannot be understood ({type(error).__name__}: {error})") from error
    return found


def _refuse_newer(path: Path, version: object) -> None:
    if type(version) is not int:
        raise ValueError(f"its version is {version!r}")
    if version > VERSION:
        raise StoreTooNew(
            f"{path} is an export of version {version}, written by a newer version of Spolia; this one reads up to "
            f"{VERSION}. Write: pip install -U spolia"
        )


def _refuse_odd(found: Contents) -> None:
    if odd := set(found.members) ^ found.expected - ({CURSORS} - set(found.members)):
        raise ValueError(f"it names {', '.join(sorted(odd))} in one place only")
    for name, member in found.members.items():
        numbers = (member.rows, member.bytes)
        if any(type(number) is not int or number < 0 for number in numbers) or not isinstance(member.blake2b, str):
            raise ValueError(f"what it says of {name} is {member!r}")
    if len({manifest.group for manifest in found.manifests}) < len(found.manifests):
        raise ValueError("it names a group twice")


def damaged(path: Path, why: str) -> StoreCorrupt:
    """What to raise for a file that is not as it was written."""
    return StoreCorrupt(
        f"{path} is not an export as `spolia export` writes it: {why}. Nothing was imported. Copy it again, or export "
        "the store again: spolia export STORE FILE"
    )
