"""Which part of a data set a question belongs to: always the same one, decided by its id alone."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

from spolia.errors import DataError

PARTS: Mapping[str, float] = {"tune": 0.4, "select": 0.2, "report": 0.4}
"""The parts and their shares: what is tuned on, what decides between the tuned, what is told to others. Frozen: another
share would move questions that were tuned on into what is reported."""

TWIN = "-unanswerable"
"""What the id of a question ends in that stands in its data set a second time, with passages that do not answer it."""


def part_of(id: str) -> str:
    """The part of a question, by a hash of its id: the same for whoever asks, whatever else is in the data set.

    >>> part_of("q1"), part_of("q2"), part_of("q2-unanswerable"), part_of("q3")
    ('report', 'select', 'select', 'tune')
    """
    asked = asked_by(id).encode("utf-8", "surrogatepass")
    number = int.from_bytes(hashlib.blake2b(asked, digest_size=8).digest()) / 2**64
    for name, share in PARTS.items():
        if number < share:
            return name
        number -= share
    return name


def asked_by(id: str) -> str:
    """The id that a question and its twin share, so that who was tuned on one is not told of by the other."""
    return id.removesuffix(TWIN)


def counted(ids: Iterable[str]) -> dict[str, int]:
    """How many of some questions are in each part; parts without any are left out."""
    found = dict.fromkeys(PARTS, 0)
    for id in ids:
        found[part_of(id)] += 1
    return {name: number for name, number in found.items() if number}


def checked_part(name: str) -> str:
    """The name of a part, or an error that says which there are."""
    if name not in PARTS:
        raise DataError(f"There is no part {name!r} of a data set. Write one of: {', '.join(PARTS)}.")
    return name
