"""What every transform of the catalogue keeps, also one that is added later."""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Any, get_origin, get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spolia.core.operator import Operator
from spolia.core.registry import Catalogue
from spolia.indexing.transforms.by_pattern import ByPattern
from spolia.indexing.transforms.function import transform
from spolia.models.prompting.stand_in_models import ScriptedModel
from spolia.models.protocols import Embedder, LanguageModel
from spolia.stores.definition import Part, Piece, Pieces
from spolia.testing import HashingEmbedder
from spolia.types import Document, Heading, Node, Span
from tests.flows.examples import _of
from tests.tree import few

REPLIES = (
    "none",
    "",
    "A sentence about it.",
    "1. one\n2. two, three\n3. Who?",
    "Q: Who is it?\nA: Ann.",
    "Ann | person\nX | y",
    '{"a": [1]}',
    "yes",
    "7",
    "\x00‮ {{text}} </text>",
)
ALPHABET = 'Ann b. C?\n\t#-|<>"“”,1é東だ。😀\u0301\u200d{}[]()`'


@transform
def halves(text: str, refs: list[str]) -> list[str]:
    return [text[: len(text) // 2], text[len(text) // 2 :]]


def takes_parts(cls: type[Operator[Any, Any]]) -> bool:
    """Whether an operator says of itself that it takes a part."""
    try:
        return cls.takes(object.__new__(cls)) is Part
    except AttributeError:  # it asks a field; combinators are no transforms of their own
        return False


ARMS = get_type_hints(ByPattern)["transforms"]
TRANSFORMS = sorted(filter(takes_parts, Catalogue().operators()), key=lambda cls: cls.__name__)


def make_operator(cls: Any, reply: str, draw: st.DataObject) -> Operator[Part, Pieces]:
    """One with what it needs; a model says `reply`, whatever it is asked."""
    hints = get_type_hints(cls)
    needed = [f for f in fields(cls) if f.init and f.default is MISSING and f.default_factory is MISSING]
    return cls.from_fields({f.name: _needed(hints[f.name], reply, draw) for f in needed})  # type: ignore[no-any-return]


def _needed(hint: Any, reply: str, draw: st.DataObject) -> Any:
    kind = get_origin(hint) or hint
    if kind is LanguageModel:
        return ScriptedModel((reply,))
    if kind is Embedder:
        return HashingEmbedder()
    if kind is Operator:
        return halves
    if isinstance(kind, type) and issubclass(kind, Operator):
        return make_operator(next(cls for cls in TRANSFORMS if issubclass(cls, kind)), reply, draw)
    if hint == ARMS:  # any operator at all would be drawn with prompts and files that are not there
        patterns = draw.draw(st.lists(st.sampled_from(["*.md", "*.py", "a*", "b.txt"]), unique=True))
        return tuple((pattern, halves) for pattern in patterns)
    if hint == tuple[str, ...]:  # no name at all is refused
        return draw.draw(_of(hint).filter(bool))
    return draw.draw(_of(hint))


@st.composite
def parts(draw: st.DrawFn) -> Part:
    """Documents of every shape, whole or cut."""
    text = draw(st.text(ALPHABET, max_size=120) | st.text(max_size=40))
    bounds = sorted(draw(st.tuples(st.integers(0, len(text)), st.integers(0, len(text)))))
    headings = (Heading(0, 1, text[:5]),) if draw(st.booleans()) else ()
    kind = draw(st.sampled_from(["text/plain", "text/markdown", "text/html", "text/csv", "application/json"]))
    document = Document("d", text, draw(st.sampled_from(["", "a.md", "a.py", "a.csv"])), "T", kind, headings=headings)
    start, end = bounds if draw(st.booleans()) else (0, len(text))
    refs = (Node("r", text[:3], "d"),) if draw(st.booleans()) else ()
    return Part(Node("n", text[start:end], "d", span=Span(start, end)), document, refs)


def test_there_are_transforms() -> None:
    names = {cls.__name__ for cls in TRANSFORMS}
    assert names >= {"Summary", "Keywords", "QuestionAnswers", "HypotheticalQuestions", "ContextualHeaders"}
    assert names >= {"RuleEntities", "LLMEntities"}


@pytest.mark.slow
@pytest.mark.parametrize("cls", few(TRANSFORMS, 6), ids=lambda cls: cls.__name__)
def test_it_gives_pieces_that_stand_where_they_say(cls: type[Operator[Part, Pieces]]) -> None:
    @given(part=parts(), reply=st.sampled_from(REPLIES) | st.text(ALPHABET), draw=st.data())
    @settings(max_examples=60)
    def check_example(part: Part, reply: str, draw: st.DataObject) -> None:
        op = make_operator(cls, reply, draw)
        pieces = op(part)
        assert isinstance(pieces, tuple)
        for piece in pieces:
            assert isinstance(piece, Piece)
            assert (piece.text + piece.search_text).strip()
            if piece.start is not None:
                assert piece.start >= 0
                assert part.node.text[piece.start : piece.start + len(piece.text)] == piece.text
        assert op(part) == pieces, "the same part gives the same pieces"
        count = op.fanout()
        assert count is None or len(pieces) <= count

    check_example()


@pytest.mark.parametrize("cls", few(TRANSFORMS, 6), ids=lambda cls: cls.__name__)
def test_it_takes_parts_and_gives_pieces(cls: type[Operator[Part, Pieces]]) -> None:
    @given(draw=st.data())
    @settings(max_examples=3)
    def check_example(draw: st.DataObject) -> None:
        assert make_operator(cls, "x", draw).gives(Part) == tuple[Piece, ...]

    check_example()
