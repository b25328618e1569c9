"""What is redacted is nowhere in a store or a trace, and all places in the text stay where they were."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from spolia import Corpus, Dense, Extract, Query, sync
from spolia.core.redaction import KINDS, Finding, Patterns, label_places, mask_places
from spolia.errors import QueryError
from spolia.indexing.readers.registry import redacting_readers
from spolia.journal import Runs
from spolia.journal.values import make_redaction
from spolia.run import Run
from spolia.testing import HashingEmbedder
from tests.cases import check_each
from tests.cli.conftest import Spolia, spolia  # noqa: F401

MAIL = "ann.lee@example.org"
TEXT = f"# Harbour\n\nThe harbour of Aalborg is run by Ann Lee. Write to {MAIL} about the harbour.\n"
TABLE = f"name,mail\nAnn,{MAIL}\nBob,none\n"


@dataclass(frozen=True)
class Names:
    """Stands for a model that marks names: simulated."""

    def find_sensitive(self, text: str, /) -> Iterator[Finding]:
        if (position := text.find("Ann Lee")) >= 0:
            yield position, position + 7, "person"
            yield position + 4, position + 9, "person"  # overlaps


@check_each(
    ("text", "label"),
    [
        ("Call +45 98 12 34 56 now", "Call [PHONE] now"),
        ("from 192.168.0.1 and 1.2.3.4.5 and 999.1.1.1", "from [IP] and 1.2.3.4.5 and 999.1.1.1"),
        ("key sk-abcdefghijklmnopqrst.", "key [SECRET]."),
        ("DE89 3704 0044 0532 0130 00 but DE88 3704 0044 0532 0130 00", "[IBAN] but DE88 3704 0044 0532 0130 00"),
        ("In 1888, 12 of 4,500 ships; version 2.10.3; a@b; page 12-14.", None),
        ("ann@example.org, BOB@mail.example.co.uk", "[EMAIL], [EMAIL]"),
        ("", None),
    ],
)
def test_patterns_find_what_they_should_and_no_more(text: str, label: str | None) -> None:
    assert label_places(text, Patterns()) == (text if label is None else label)
    assert len(mask_places(text, Patterns())) == len(text)


@pytest.mark.slow
def test_long_texts_take_linear_work_and_a_kind_that_is_not_known_is_refused() -> None:
    for text in ("a" * 200_000, "1 " * 100_000, "a.b-" * 50_000, "+1 " * 60_000):
        mask_places(text, Patterns())
    with pytest.raises(QueryError, match=", ".join(KINDS)):
        Patterns(("mail",))


def test_overlapping_places_are_one_and_lines_stay() -> None:
    assert mask_places("By Ann Lee.\nOk", Names()) == "By ████████\nOk"
    assert label_places("By Ann Lee.", Names()) == "By [PERSON][PERSON]"


@pytest.mark.slow
def test_a_redacted_store_has_the_text_nowhere_and_quotes_are_in_their_place(
    tmp_path: Path,
    spolia: Spolia,  # noqa: F811
) -> None:
    notes, store = tmp_path / "notes", tmp_path / "n.spolia"
    notes.mkdir()
    (notes / "harbour.md").write_text(TEXT)
    (notes / "people.csv").write_text(TABLE)
    (notes / "offer.eml").write_text(f"From: {MAIL}\nSubject: Offer\n\nThe offer of {MAIL} stands.\n")
    (tmp_path / "names.py").write_text(
        "class Names:\n    def found(self, text):\n        at = text.find('Ann Lee')\n"
        "        return [(at, at + 7, 'person')] if at >= 0 else []\n"
        "    def __repr__(self):\n        return 'Names()'\n"
    )
    index = ("index", notes, "--store", store, "--no-vectors", "--redact", "email", "--json")
    assert spolia(*index).code == 0
    second_output = spolia(*index).json
    changed = spolia(*index, "--redact", f"{tmp_path / 'names.py'}:Names", "--workers", 0).json
    assert (second_output["unchanged"], changed["unchanged"]) == (3, 0)
    stored = b"".join(path.read_bytes() for path in store.rglob("*") if path.is_file())
    assert (MAIL.encode() in stored, b"Aalborg" in stored) == (False, True)
    hits = spolia("search", "Aalborg harbour", "--store", store, "--flow", "bm25", "--top-k", 1, "--json").json["hits"]
    (hit,) = hits
    start, end = hit["span"]["start"], hit["span"]["end"]
    covered = TEXT.replace(MAIL, "█" * len(MAIL)).replace("Ann Lee", "█" * 7)
    assert covered[start:end] == hit["text"]
    assert spolia(*index, "--redact", "mail").code == 2
    plain = spolia("index", notes, "--store", store, "--no-vectors")
    assert (plain.code, "--rebuild to store it" in plain.err) == (2, True)
    assert not any(MAIL.encode() in path.read_bytes() for path in store.rglob("*") if path.is_file())
    assert spolia("index", notes, "--store", store, "--no-vectors", "--rebuild").code == 0


@pytest.mark.slow
def test_a_trace_has_kinds_in_place_of_what_is_redacted(tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "harbour.md").write_text(TEXT)
    corpus = Corpus(str(tmp_path / "n.spolia"))
    sync(str(tmp_path / "notes"), corpus, readers=redacting_readers(Patterns()), embedder=HashingEmbedder())
    flow = Dense(corpus.group(), HashingEmbedder()) >> Extract(embedder=HashingEmbedder())
    with Runs(tmp_path / "runs.db", values=True, redact=make_redaction(Patterns())) as runs:
        for _ in range(2):
            with Run(journal=runs.journal, cache=runs.cache) as run:
                flow(Query(f"Is {MAIL} at the harbour?"))
        runs.journal.flush()
        assert runs.journal.questions(run.id) == {1: "Is [EMAIL] at the harbour?"}
        with Run(cache=runs.cache):
            flow(Query("Is there a harbour?"))
        ((cached,),) = runs.database.read("SELECT count(*) FROM cache")
        assert cached > 0
    stored = b"".join(path.read_bytes() for path in tmp_path.glob("runs.db*"))
    assert MAIL.encode() not in stored
