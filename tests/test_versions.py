"""An operator's version is counted up when its source changes: else the cache would give old results for new code."""

from __future__ import annotations

import pytest

from spolia.core.fingerprint.definition import Module, hash_definition
from tests.cases import check_each
from tests.versions import read_record, refresh, sources, stale

SOURCE = '''
from spolia.ranking import fused
from spolia.types import Query
LEAST = 3
UNUSED = 4

def used(text: str) -> str:
    """What for."""
    return deeper(text)

def deeper(text):
    return text[:LEAST]

class Cut(Operator[str, str]):
    """What for."""

    top_k: int = 10
    version: ClassVar[int] = 1

    def apply(self, value: str, /) -> str:
        if not value:
            raise QueryError("Empty.")
        return used(value) + fused(value)

    def calls(self, rows=None):
        return 0
'''
RANKING = "def fused(text):\n    return text * K\n\nK = 60\n"


@pytest.mark.slow
def test_no_operator_has_changed_under_its_version() -> None:
    assert stale(sources(), read_record()) == [], "count the version up, then: make versions"


@pytest.mark.slow
def test_every_operator_is_recorded() -> None:
    now, recorded_versions = sources(), read_record()
    new = [name for name in now if name not in recorded_versions or recorded_versions[name][0] != now[name][0]]
    assert new == [], "write: make versions"
    assert [name for name in recorded_versions if name not in now] == [], "an operator is gone; write: make versions"


@check_each(
    ("before", "after", "same"),
    [
        ('"""What for."""', '"""For what."""', True),
        ("+ fused(value)", "+ fused(value)  # why", True),
        ("UNUSED = 4", "UNUSED = 5", True),
        ('"Empty."', '"There is nothing."', True),
        ("version: ClassVar[int] = 1", "version: ClassVar[int] = 2", True),
        ("text: str) -> str", "text: object) -> object", True),
        ("return 0\n", "return None\n", True),
        ("LEAST = 3", "LEAST = 4", False),
        ("top_k: int = 10", "top_k: int = 11", False),
        ("if not value", "if value", False),
        ("text[:LEAST]", "text[LEAST:]", False),
        ("return deeper(text)", "return deeper(text).lower()", False),
        ("K = 60", "K = 61", False),
    ],
)
def test_what_can_change_a_result_changes_the_hash(before: str, after: str, same: bool) -> None:
    assert before in SOURCE + RANKING
    assert (_hash(SOURCE, RANKING) == _hash(SOURCE.replace(before, after), RANKING.replace(before, after))) == same


def _hash(source: str, ranking: str) -> bytes:
    texts = {"spolia.cut": source, "spolia.ranking": ranking}
    return hash_definition("spolia.cut", "Cut", lambda name: Module.from_text(texts[name]))


def test_nothing_is_recorded_while_a_source_has_changed_under_its_version() -> None:
    recorded_versions = {"Cut": (1, "a"), "Kept": (1, "k"), "Gone": (1, "g")}
    with pytest.raises(SystemExit, match="The source of Cut has changed and the version has not"):
        refresh({"Cut": (1, "b"), "Kept": (1, "k")}, recorded_versions)
    assert refresh({"New": (1, "n"), "Cut": (2, "b"), "Kept": (1, "k")}, recorded_versions) == {
        "Cut": (2, "b"),
        "Kept": (1, "k"),
        "New": (1, "n"),
    }
