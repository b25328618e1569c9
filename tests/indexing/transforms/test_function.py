"""Plain functions as transforms: what they are given, what they return, and how they are told apart."""

from __future__ import annotations

import pickle
import re
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, date, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spolia.core.codec import decode, encode
from spolia.core.function import Function, step
from spolia.core.operator import Operator
from spolia.errors import DocumentError, GroupError, ModelUnavailable, WiringError
from spolia.flow_files.files import dump, load
from spolia.indexing.transforms.by_pattern import ByPattern
from spolia.indexing.transforms.function import TextPlaces, meta_of, transform
from spolia.journal import Cache
from spolia.models.prompting.stand_in_models import ScriptedModel
from spolia.run import Run
from spolia.stores.definition import Definition, Part, Piece, Pieces, refuse_unstorable
from spolia.types import Node
from tests.cases import check_each
from tests.indexing.transforms.fixtures import cut_part, texts_and_starts, whole_part

if TYPE_CHECKING:
    from spolia.types import Span as Hidden

TEXT = "One is here. Two is there.\n---\nOne more."


@transform
def clauses(text: str) -> list[str]:
    """Sentences, in a way."""
    return re.findall(r"[^.]+\.", text)


@transform(version=2)
def shouted(node: Node) -> Node:
    return node.but(text=node.text.upper(), meta=(*node.meta, ("loud", True)))


@transform
def described(part: Part) -> dict[str, object]:
    return {"text": part.document.title, "meta": {"refs": len(part.refs)}}


def beside_plain(text: str, refs: list[str]) -> str:
    return f"{text}: {len(refs)}"


@transform
def beside(text: str, refs: list[str]) -> str:
    return f"{len(text)}: {' + '.join(refs)}"


def apply_returning(value: object) -> Pieces:
    return transform(lambda text: value)(whole_part(TEXT))


# ---------------------------------------------------------------------------------------------- what they are given


def test_a_function_of_text_gets_the_nodes_text_and_cuts_keep_their_places() -> None:
    pieces = clauses(cut_part(TEXT, 13, len(TEXT)))
    assert texts_and_starts(pieces) == [("Two is there.", 0), ("\n---\nOne more.", 13)]


def test_a_function_of_nodes_gets_the_node_and_what_it_inherits_is_not_repeated() -> None:
    (piece,) = shouted(whole_part("Salt.", meta=(("year", 1999),)))
    assert (piece.text, piece.start, piece.meta, piece.context) == ("SALT.", None, (("loud", True),), "")


def test_a_function_of_parts_gets_all_there_is() -> None:
    (piece,) = described(whole_part("Salt.", title="Mines"))
    assert (piece.text, piece.meta) == ("Mines", (("refs", 0),))


def test_refs_come_as_texts_or_as_nodes() -> None:
    part = cut_part(TEXT, 0, 12, "r-one", "r-two")
    assert texts_and_starts(beside(part)) == [("12: r-one + r-two", None)]

    @transform
    def nodes(node: Node, refs):  # type: ignore[no-untyped-def]
        return [ref.id for ref in refs]

    @transform
    def annotated(text, refs: list[Node] = []):  # type: ignore[no-untyped-def]  # noqa: B006
        return [ref.id for ref in refs]

    assert [piece.text for piece in nodes(part)] == [piece.text for piece in annotated(part)] == ["r0", "r1"]
    with pytest.raises(GroupError, match=r"clauses takes no refs. Write def clauses\(text, refs\)"):
        clauses(part)


def test_an_annotation_that_only_the_type_checker_sees_does_not_hide_the_others() -> None:
    @transform
    def named(node: Node, span: Hidden | None = None) -> str:
        return node.id

    assert texts_and_starts(named(whole_part("x"))) == [("d", None)]


def two(first: str, second: str) -> str:
    return first + second


def numbered(value: int) -> int:
    return value


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (two, r"two takes first, second; a transform takes one value.*Write def two\(text\)"),
        (numbered, r"numbered takes value: int.*Write value: str, value: Node or value: Part"),
        (lambda: "x", "takes nothing"),
    ],
)
def test_a_function_that_is_no_transform_is_refused(function: Callable[..., object], expected: str) -> None:
    with pytest.raises(WiringError, match=expected):
        transform(function)


def test_built_in_functions_are_functions_of_text() -> None:
    assert texts_and_starts(transform(str.splitlines)(whole_part("a\nb"))) == [("a", 0), ("b", 2)]
    assert texts_and_starts(transform(len)(whole_part("four"))) == [("4", None)]


# ---------------------------------------------------------------------------------------------- what they return


@check_each(
    ("value", "expected"),
    [
        (None, []),
        ("", []),
        (" \n", []),
        ([], []),
        ([None, "", 0, False, 1.5], [("0", None), ("False", None), ("1.5", None)]),
        (0, [("0", None)]),
        (False, [("False", None)]),
        ("new", [("new", None)]),
        ("Two", [("Two", 13)]),
        ("One", [("One", 0)]),
        ({"text": "Two", "meta": {"n": 1}}, [("Two", 13)]),
        ({"text": 7}, [("7", None)]),
        ({"text": None}, []),
        (Piece("Two", 13), [("Two", 13)]),
        (Piece("Two"), [("Two", None)]),
        (Piece("", search_text="why?"), [("", None)]),
        (("Two", Piece("Two", 13), {"text": "x"}), [("Two", 13), ("Two", 13), ("x", None)]),
        (iter(["One", "One"]), [("One", 0), ("One", None)]),
    ],
)
def test_whatever_is_returned_becomes_nodes(value: object, expected: list[tuple[str, int | None]]) -> None:
    assert texts_and_starts(apply_returning(value)) == expected


def test_a_generator_is_read_to_its_end() -> None:
    @transform
    def words(text: str) -> Iterator[str]:
        yield from text.split()

    assert texts_and_starts(words(whole_part("a b\n a"))) == [("a", 0), ("b", 2), ("a", 5)]


def test_days_and_moments_are_texts_that_sort() -> None:
    day, moment = date(2026, 11, 21), datetime(2026, 11, 21, 9, 30, tzinfo=UTC)
    assert texts_and_starts(apply_returning([day])) == [("2026-11-21", None)]
    (piece,) = apply_returning({"text": "x", "meta": {"on": [day, moment]}})
    assert piece.meta == (("on", "2026-11-21"), ("on", "2026-11-21T09:30:00Z"))


def test_metadata_may_have_several_values_and_search_another_text() -> None:
    (piece,) = apply_returning({"text": "x", "search_text": "y", "context": "z", "meta": {"tag": ["a", "b"], "n": 0}})
    assert piece == Piece("x", None, "z", "y", (("tag", "a"), ("tag", "b"), ("n", 0)))


@check_each(
    ("value", "expected"),
    [
        ({"a", "b"}, r"a set, which has no order. Return sorted\(...\)"),
        (b"bytes", "of type bytes, which is not a piece. Return a text, a number"),
        ([["nested"]], "of type list, which is not a piece"),
        ({"text": "x", "title": "y"}, "a dict with 'title'. Its names are text, start, context"),
        (
            {"text": "x", "meta": {"when": object()}},
            "returned metadata whose 'when' is not a value: .* of type object. Write a text",
        ),
        (
            {"text": "x", "meta": {"by": {"Ann"}}},
            "'by' is not a value: {'Ann'} is of type set. Write .* or a list of these",
        ),
        ({"text": "x", "meta": {"at": datetime(2026, 1, 1)}}, "says no time zone"),
        ({"text": "x", "meta": "y"}, r"returned the metadata 'y'\. Give names with values: \{'year': 2020\}"),
        ({"text": "x", "meta": ("y", "z")}, r"returned the metadata \('y', 'z'\)"),
        ({"text": "x", "meta": {1: "y"}}, "returned metadata with the name 1. Give names that are texts"),
        (Piece("Two", 3), "the text 'Two' with start=3, where ' is' stands"),
        (Piece("Two", -26), "start=-26"),
        ({"text": "Two", "start": 999}, "start=999, where '' stands"),
    ],
)
def test_what_stands_for_no_piece_is_refused_and_says_what_to_return(value: object, expected: str) -> None:
    with pytest.raises(WiringError, match=expected):
        apply_returning(value)


def test_what_is_wrong_names_function_node_and_document() -> None:
    @transform
    def odd(text: str) -> object:
        return {text}

    with pytest.raises(
        WiringError, match=r"^The transform odd, for node 'd' of 'notes/d\.txt', returned a set, which"
    ) as error:
        odd(whole_part("a"))
    assert not getattr(error.value, "__notes__", ()), "said once"


@pytest.mark.parametrize("decorator", [transform, step])
def test_an_async_function_is_refused(decorator: Callable[[Any], object]) -> None:
    async def fetched(text: str) -> str:
        return text

    async def yielded(text: str) -> AsyncIterator[str]:
        yield text

    for function in (fetched, yielded):
        with pytest.raises(WiringError, match=r"\w+ is async, .* Write def \w+\("):
            decorator(function)


def test_a_function_that_takes_refs_needs_a_group_that_they_come_from() -> None:
    @transform
    def titled(text: str, refs: list[str] = []) -> str:  # noqa: B006
        return text

    taking = transform(beside_plain)
    for transform_with_refs in (taking, ByPattern((("*.md", taking),))):
        with pytest.raises(GroupError, match=r"^beside_plain takes refs, .* Write Definition\(\.\.\., ref=GROUP\)"):
            Definition(transform_with_refs)
        assert Definition(transform_with_refs, ref="sentence").ref == "sentence"
    assert Definition(titled).ref == "", "its refs have a default"


@pytest.mark.slow
@given(st.text("ab .\n", max_size=60), st.lists(st.text("ab .\n", max_size=6)))
def test_a_place_is_always_true(text: str, parts: list[str]) -> None:
    for piece in transform(lambda _: parts)(whole_part(text)):
        assert piece.start is None or text[piece.start : piece.start + len(piece.text)] == piece.text


@pytest.mark.slow
@given(st.text("ab .\n", max_size=60), st.sampled_from([r"\n", r" ", r"\.", r"b"]))
def test_what_was_cut_at_marks_keeps_its_place(text: str, mark: str) -> None:
    expected = [match.span() for match in re.finditer(rf"[^{mark}]+", text) if match[0].strip()]
    pieces = transform(lambda text: re.split(mark, text))(whole_part(text))
    if mark == "b":  # a letter between two texts: it may be another word, so only what occurs once has a place
        assert all(text.count(piece.text) != 1 or piece.start == text.index(piece.text) for piece in pieces)
    else:
        assert [(piece.start, (piece.start or 0) + len(piece.text)) for piece in pieces] == expected


@pytest.mark.slow
def test_places_are_searched_for_in_bounded_time() -> None:
    words = [f"w{number}" for number in range(20_000)]
    text = " ".join(words)
    backwards = transform(lambda text: list(reversed(text.split())))(whole_part(text))
    assert sum(piece.start is not None for piece in backwards) <= 1_001
    assert all(piece.start is not None for piece in transform(str.split)(whole_part(text)))


# ---------------------------------------------------------------------------------------------- what goes wrong


def test_an_exception_is_told_with_document_and_node() -> None:
    @transform
    def broken(text: str) -> Iterator[str]:
        yield "one"
        raise KeyError("x")

    with pytest.raises(DocumentError, match=r"broken failed on node 'd' of 'notes/d.txt': KeyError: 'x'") as caught:
        broken(whole_part("text"))
    assert isinstance(caught.value.__cause__, KeyError)


def test_an_error_that_a_run_knows_keeps_its_type() -> None:
    @transform
    def offline(text: str) -> str:
        raise ModelUnavailable("nobody answers")

    with pytest.raises(ModelUnavailable, match="nobody answers") as caught:
        offline(whole_part("text"))
    transform_note, step_note = caught.value.__notes__
    assert transform_note == "In the transform offline, for node 'd' of 'notes/d.txt'."
    assert step_note.startswith(f"In the step offline: {__file__}, line ")


# ---------------------------------------------------------------------------------------------- how they are told apart


@pytest.mark.slow
def test_it_is_an_operator_like_any_other() -> None:
    assert isinstance(clauses, Function)
    assert (clauses.takes(), clauses.gives(Part)) == (Part, tuple[Piece, ...])
    assert repr(clauses) == "clauses"
    assert pickle.loads(pickle.dumps(clauses)) is clauses
    assert decode(encode(clauses)) == clauses
    assert load(dump(shouted), operators=[shouted]) == shouted
    definition = Definition(clauses, parent="document")
    assert decode(encode(definition)) == definition
    refuse_unstorable(clauses)


def compile_again(
    version: int = 1, body: str = "text.split()", default: str = "1", comment: str = ""
) -> Operator[Part, Pieces]:
    """The same function, written again."""
    import linecache

    source = f"def again(text, size={default}):{comment}\n    return {body}\n"
    linecache.cache["<again>"] = (len(source), None, source.splitlines(True), "<again>")
    names: dict[str, Any] = {"__name__": "again", "ONE": 1, "TWO": 2}
    exec(compile(source, "<again>", "exec"), names)
    return transform(version=version)(names["again"])


@pytest.mark.slow
def test_its_digest_changes_with_version_source_and_defaults_not_with_comments() -> None:
    same = [compile_again(), compile_again(), compile_again(comment="  # why")]
    changed = [
        compile_again(version=2),
        compile_again(body="text.splitlines()"),
        compile_again(default="2"),
        compile_again(default="TWO"),
    ]
    assert len({op.digest for op in same}) == 1
    assert len({op.digest for op in [*same, *changed]}) == 5


def test_a_lambda_runs_but_nothing_takes_it_for_another_and_no_store_takes_it() -> None:
    first, second = (transform(lambda text: text.upper()) for _ in range(2))
    assert texts_and_starts(first(whole_part("a"))) == [("A", None)]
    assert first.digest != second.digest
    with pytest.raises(GroupError, match=r"a lambda has no name.*Write def name\(...\)"):
        refuse_unstorable(first)
    with pytest.raises(WiringError, match="cannot be cached: a lambda"):
        transform(cached=True)(lambda text: text)


class Splitting:
    def by(self, text: str) -> list[str]:
        return text.split()


def closing_over(size: int) -> Callable[[str], str]:
    def head(text: str) -> str:
        return text[:size]

    return head


def unhashable(text: str, pattern: re.Pattern[str] = re.compile("a")) -> list[str]:
    return pattern.split(text)


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (closing_over(3), "head cannot be part of a stored group: its result depends on size of the function around"),
        (partial(two, "x"), "partial has no name"),
        (Splitting().by, "it is a method of"),
        (unhashable, "its result depends on a default value"),
    ],
)
def test_what_a_name_does_not_tell_is_refused_for_stores(function: Callable[..., object], expected: str) -> None:
    unnamed = transform(function)
    assert unnamed(whole_part("xaz"))
    with pytest.raises(GroupError, match=expected):
        refuse_unstorable(unnamed)


def test_a_function_is_found_wherever_it_hides_in_an_operator() -> None:
    from spolia.indexing.transforms.contextual_headers import ContextualHeaders

    headers = ContextualHeaders(ScriptedModel(("x",)), transform(lambda text: text))
    with pytest.raises(GroupError, match="a lambda"):
        refuse_unstorable(headers)
    with pytest.raises(GroupError, match="a lambda"):
        refuse_unstorable(step(lambda value: value) >> step(lambda value: value))
    refuse_unstorable(headers.but(splitter=clauses))


asked: list[str] = []


@transform(cached=True)
def counted(text: str) -> str:
    asked.append(text)
    return text.upper()


@pytest.mark.slow
def test_results_are_kept_by_text_when_that_is_wanted() -> None:
    asked.clear()
    with Run(cache=Cache()):
        assert counted(whole_part("a")) == counted(whole_part("a", id="other")) == (Piece("A"),)
        counted(whole_part("b"))
    assert asked == ["a", "b"]


def test_texts_are_found_one_after_the_other() -> None:
    places = TextPlaces("One. Two, three. Two.")
    assert [places.find_start(text) for text in ("One", "Two", "three", "Four", "Two")] == [0, 5, 10, None, 17]


def test_metadata_may_have_several_values() -> None:
    assert meta_of({"year": 1999, "tag": ["a", "b"]}) == (("year", 1999), ("tag", "a"), ("tag", "b"))
