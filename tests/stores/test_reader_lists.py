"""A reader list that is none is refused wherever one enters a store: a slip must not open a text."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spolia import Corpus, add_texts
from spolia.errors import StoreError
from spolia.stores.backends.rows import SourceRow
from spolia.stores.writer import Writer
from spolia.types import Document

NONE: list[Any] = ["ann", "", None, b"ann", [""], [1], ("ann", None), ["\ud800"], 7]


def by_set_readers(writer: Writer, readers: Any) -> None:
    (document,) = writer.documents()
    writer.set_readers(document, readers)


def by_putting(writer: Writer, readers: Any) -> None:
    writer.put_document(Document("d", "Salt.", "salt.txt", readers=readers), (), SourceRow("salt.txt"))


def by_a_node(writer: Writer, readers: Any) -> None:
    (document,) = writer.documents()
    (node,) = writer.nodes(document.id, "chunk")
    changed = document.but(id="e", uri="e.txt")
    writer.put_document(changed, [node.but(id="e:1", document="e", readers=readers)], SourceRow("e.txt"))


@pytest.mark.parametrize("readers", NONE, ids=repr)
@pytest.mark.parametrize("way", [by_set_readers, by_putting, by_a_node])
def test_what_is_no_list_of_principals(way: Callable[[Writer, Any], None], readers: Any, fast_folder: Path) -> None:
    corpus = Corpus(str(fast_folder / "a.spolia"))
    add_texts(corpus, {"tides.md": "The tide rises."})
    with corpus.writer() as writer:
        with pytest.raises(StoreError, match=r"Give (a list of principals, each a text|it as it is written)"):
            way(writer, readers)
        assert [(document.uri, document.readers) for document in writer.documents()] == [("text:tides.md", ())]


def test_what_is_no_document(fast_folder: Path) -> None:
    corpus: Any = Corpus(str(fast_folder / "a.spolia"))
    add_texts(corpus, {"tides.md": "The tide rises."})
    with (
        corpus.writer() as writer,
        pytest.raises(
            StoreError, match=r"^'tides\.md' \(str\) is not a Document\. Write .* if document\.uri == 'tides"
        ),
    ):
        writer.set_readers("tides.md", ["ann"])


@pytest.mark.slow
def test_a_list_is_for_those_that_it_names_whatever_its_kind(fast_folder: Path) -> None:
    corpus: Any = Corpus(str(fast_folder / "a.spolia"))
    add_texts(corpus, {"tides.md": "The tide rises."})
    for readers in (["bob", "ann"], ("ann", "bob"), {"ann", "bob"}, iter(["ann", "bob", "ann"])):
        with corpus.writer() as writer:
            (document,) = writer.documents()
            writer.set_readers(document, readers)
            (document,) = writer.documents()
            assert document.readers == ("ann", "bob")
            writer.set_readers(document, [])
            (document,) = writer.documents()
            assert document.readers == ()
