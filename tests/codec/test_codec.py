"""Values and addresses survive the way to plain data and back, and what does not fit is refused with its place."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal, Protocol, TypeVar, runtime_checkable

import pytest

from spolia.core.codec import IMPORTED, decode, encode, type_id
from spolia.core.function import step
from spolia.core.operator import Operator
from spolia.errors import CodecError
from spolia.types import Answer, Citation, Hit, Node, Query, Ranking, Span, State, Value
from tests.cases import check_each

T = TypeVar("T")
OWN = __name__.partition(".")[0] + ":"


def back(value: Any, declared: Any = Any, **options: Any) -> Any:
    plain = json.loads(json.dumps(encode(value, declared, **options), allow_nan=False))
    return decode(plain, declared, classes=known(), **options)


@cache
def known() -> Mapping[str, Any]:
    """Return the classes of this module beside Spolia's, without those that other tests define."""
    own = (Alto, Choir, Chain, Kinds, Half, Twice, type(increased))
    return {name: IMPORTED[name] for name in IMPORTED if ":" not in name} | {type_id(cls): cls for cls in own}


@runtime_checkable
class Voice(Protocol):
    @property
    def pitch(self) -> float: ...


@dataclass(frozen=True)
class Alto(Value):
    pitch: float = 1.0


@dataclass(frozen=True)
class Choir(Value):
    lead: Voice
    others: tuple[Voice, ...] = ()
    parts: tuple[tuple[str, Voice], ...] = ()


@dataclass(frozen=True)
class Chain(State):
    question: str
    hops: tuple[tuple[str, str], ...] = ()
    best: tuple[int, ...] | None = None
    pair: tuple[str, float] | None = None
    seconds: float = field(default=0.0, compare=False)


@dataclass(frozen=True)
class Kinds(Value):
    mode: Literal["fast", "exact", 1] = "fast"
    size: int | float = 1
    anything: Any = None
    table: Mapping[str, int] | None = None
    several: Sequence[int] = ()
    listed: list[int] = field(default_factory=list, hash=False)
    either: Query | Span | str | None = None
    truth: bool = True
    zero: float = 0.0


@dataclass(frozen=True)
class Half(Operator[int, int]):
    by: float = 2.0

    def apply(self, value: int, /) -> int:
        return int(value / self.by)


@dataclass(frozen=True)
class Twice(Operator[int, int]):
    body: Operator[int, int]
    otherwise: Operator[int, int] | str | None = None

    def apply(self, value: int, /) -> int:
        return self.body(self.body(value))


@step
def increased(n: int) -> int:
    return n + 1


VALUES: list[tuple[Any, Any]] = [
    (None, Any),
    (True, Any),
    (1, float),
    (1.0, float),
    (-0.0, Any),
    (10**30, int),
    ("né 🦜 \x00 \ud800", str),
    ((), Any),
    ((1, (2.5, "x"), None), Any),
    (["a", ("b",)], Any),
    ({"a": 1}, Any),
    (frozenset({"a", "b"}), Any),
    (frozenset({"a", "b"}), frozenset[str]),
    (("a", 1), tuple[str, int]),
    (((1, "a"), (2, "b")), tuple[tuple[int, str], ...]),
    ((("a", 1), ("b", None)), tuple[tuple[str, int | None], ...]),
    ((("a", 1), ("a", 2)), tuple[tuple[str, int], ...]),
    (Query("why?", vector=(0.5, 1.0), weight=2.0), Query),
    (Query("why?"), T),
    ((Query("why?"), Query("how?", question="why?")), tuple[Query, ...]),
    (Ranking(Query("q"), (Hit(Node("n", "t", span=Span(0, 1)), 0.5),), "bm25"), Ranking),
    (Answer("yes [1]", (Citation("1", "n", "d", "u", "q"),)), Answer),
    (Chain("q", (("use", "b"), ("c", "d")), (1,), ("x", 1.5), stop="cap", sample=3), State),
    (Chain("q", best=()), Any),
    (Choir(Alto(), (Alto(2.0), Alto(3.0)), (("use", Alto()), ("list", Alto(4.0)))), Choir),
    (Kinds("exact", 2.5, Span(1, 2), {"k": 1}, (1, 2), [1], Query("q"), False, -0.0), Kinds),
    (Kinds(1, 1, (Span(1, 2), "x"), either="Span"), Kinds),
    (Kinds(either=Span(1, 2), anything=Twice(Half() >> Half())), Kinds),
    (Half() >> Twice(Half(3.0) >> increased, Half()), Operator[int, int]),
    (Twice(Half(), "Half") >> Twice(increased), Operator),
    ((Half(), Half() >> Half()), tuple[Operator[int, int], ...]),
    (Half(1) >> Twice(Half()).vary(body=(Half(), Half() >> Half(3.0)), otherwise=("a", None)), Operator),
    (Half(2.0).vary(by=(1, 2.5)) >> Half(-0.0), Any),
]


@check_each(("value", "declared"), VALUES)
def test_a_value_comes_back_equal_with_the_same_type_and_digest(value: Any, declared: Any) -> None:
    copied = back(value, declared)
    assert copied == value
    assert type(copied) is type(value)
    assert repr(copied) == repr(value)
    if isinstance(value, (Value, Operator)):
        assert copied.digest == value.digest


@check_each(("value", "declared"), VALUES)
def test_a_value_written_without_a_declared_type_says_itself_what_it_is(value: Any, declared: Any) -> None:
    assert back(value) == value
    assert type(back(value)) is type(value)


def test_provenance_is_not_written_and_what_explains_a_value_is() -> None:
    chain = Chain("q", seconds=3.0)
    assert back(chain).seconds == 0.0
    hit = Hit(Node("n", "t"), 1.0, parts=(("bm25", 1.0),))
    assert back(hit).parts == hit.parts
    assert (hit.but(parts=()), hit.but(parts=()).digest) == (hit, hit.digest)


def test_defaults_are_left_out_but_only_to_the_last_bit() -> None:
    assert encode(Half(), Operator) == OWN + "Half"
    assert encode(Kinds(), Kinds) == {}
    assert encode(Half(2), Operator) == {OWN + "Half": {"by": 2}}


def test_the_plain_form_is_what_one_would_write() -> None:
    flow = Half() >> Twice(Half(3.0) >> Half())
    assert encode(flow, Operator) == [
        OWN + "Half",
        {OWN + "Twice": {"body": [{OWN + "Half": {"by": 3.0}}, OWN + "Half"]}},
    ]


def test_what_was_given_is_written_and_read_by_name() -> None:
    alto = Alto(7.0)
    objects = {"alto": alto}
    plain = encode(Choir(Alto(7.0), (Alto(),)), Choir, objects=objects)
    assert plain == {"lead": {"use": "alto"}, "others": [{OWN + "Alto": {}}]}
    assert decode(plain, Choir, classes=known(), objects=objects).lead is alto
    with pytest.raises(CodecError, match=r"lead.use: Unknown name 'alto'. Available: aalto. Write"):
        decode(plain, Choir, classes=known(), objects={"aalto": alto})
    with pytest.raises(CodecError, match=r"Here belongs a Voice; '.*' is of type int"):
        decode(plain, Choir, classes=known(), objects={"alto": 3})


def test_a_name_of_an_arm_may_be_use() -> None:
    choir = Choir(Alto(), parts=(("use", Alto(2.0)),))
    assert encode(choir, Choir)["parts"] == {"use": {OWN + "Alto": {"pitch": 2.0}}}
    assert back(choir, Choir) == choir


REFUSED: list[tuple[Any, Any, str]] = [
    (3, str, "Here belongs text; there was the number 3. Write it in quotes"),
    ("3", int, "Here belongs a whole number; there was the text '3'"),
    (5.0, int, "Write 5."),
    (True, int, "Here belongs a whole number; there was true"),
    (True, float, "Here belongs a number; there was true"),
    (float("nan"), float, "nan is not a finite number"),
    (float("inf"), Any, "inf is not a finite number"),
    (None, int, "there was nothing"),
    ("fst", Literal["fast"], "one of 'fast'; there was the text 'fst'"),
    ({"a": 1}, tuple[int, ...], "Here belongs a list.*Write a list"),
    ([1, "x"], tuple[int, ...], "1: Here belongs a whole number"),
    ([1], tuple[int, int], "a list of 2"),
    ([1], tuple[tuple[str, int], ...], "a mapping from names"),
    ({"a": "x"}, tuple[tuple[str, int], ...], "a: Here belongs a whole number"),
    ({"start": 0}, Span, "Span needs end. Write {Span: {start: ..., end: ...}}"),
    ({"start": 0, "end": 1, "lins": [1, 2]}, Span, "lins: Span has no field 'lins'.*Did you mean lines"),
    ({"Sapn": {"start": 0, "end": 1}}, Any, "Sapn: There is no value 'Sapn'. Did you mean Span"),
    ({"a": 1, "b": 2}, Any, "Here belongs a value; there was a mapping with a, b"),
    ([1, OWN + "Half"], Operator, "0: Here belongs an operator; there was the number 1"),
    ([OWN + "Haff"], Operator, "There is no operator '.*Haff'. Did you mean .*:Half"),
    ("zzqx:Wyvern", Operator, "no installed package 'zzqx' offers it"),
    ({"Query": {"text": "q"}}, Operator, "Query: Here belongs an operator; Query is none"),
    ([], Operator, "A chain needs at least one step"),
    ({OWN + "Half": 5}, Operator, "the fields of .*:Half by name .by.; there was the number 5"),
    ({OWN + "Half": {"by": "x"}}, Operator, ":Half.by: Here belongs a number; there was the text 'x'"),
    ({OWN + "Twice": {}}, Operator, "needs body. Write {.*:Twice: {body: ...}}"),
    ({"Vary": {"body": OWN + "Half", "ranges": {"bye": [1]}}}, Operator, "Vary.ranges.bye: .*no field 'bye'"),
    ({"Vary": {"body": OWN + "Half", "ranges": {"by": ["x"]}}}, Operator, "Vary.ranges.by.0: Here belongs a num"),
    ({"Vary": {"body": OWN + "Half", "ranges": {"by": []}}}, Operator, "The range of 'by' is empty"),
    ({"Alto": {"pitch": 1.0}}, Choir, "Choir has no field 'Alto'"),
    ({"lead": {"Span": {"start": 0, "end": 1}}}, Choir, "lead.Span: Here belongs a Voice; Span is none"),
    ({"lead": 5}, Choir, "lead: Here belongs a Voice; there was the number 5"),
]


@check_each(("plain", "declared", "message"), REFUSED)
def test_what_does_not_fit_is_refused_with_its_place(plain: Any, declared: Any, message: str) -> None:
    with pytest.raises(CodecError, match=message):
        decode(plain, declared, classes=known())


@check_each(
    ("value", "declared", "message"),
    [
        (object(), Any, "has no plain form: it is not a frozen dataclass"),
        (b"x", Any, "has no plain form"),
        (Query("q", weight=float("nan")), Query, "weight: nan is not a finite number"),
        (step(lambda n: n), Operator, "A lambda has no name"),
        (Query("q", weight="x"), Query, "weight: Here belongs a number"),  # type: ignore[arg-type]
        (3, Operator, "Here belongs an operator"),
        (Span(1, 2), Query, "Here belongs a Query"),
        ([1], tuple[int, ...], "Here belongs a list"),
        (Half() >> Half(), Operator[int, int] | tuple[int, ...], "cannot take both an operator and a tuple"),
    ],
)
def test_what_has_no_plain_form_is_refused(value: Any, declared: Any, message: str) -> None:
    with pytest.raises(CodecError, match=message):
        encode(value, declared)


@dataclass(frozen=True)
class Even(Value):
    number: int

    def __post_init__(self) -> None:
        if self.number % 2:
            raise ValueError(f"{self.number} is odd")


def test_what_a_class_of_yours_refuses_names_the_place_in_its_file() -> None:
    with pytest.raises(CodecError, match=rf"Even: 3 is odd \(in {re.escape(__file__)}, line \d+\)$"):
        decode({"number": 3}, Even)


def test_two_classes_of_one_id_are_told_apart_or_refused() -> None:
    first = type("Twin", (Value,), {"__module__": "acme.one"})
    assert IMPORTED["acme:Twin"] is first
    twin = type("Twin", (Value,), {"__module__": "acme.one"})
    assert IMPORTED["acme:Twin"] is twin
    second = type("Twin", (Value,), {"__module__": "acme.two"})
    with pytest.raises(CodecError, match=r"acme:Twin is a class in acme\.one and in acme\.two"):
        decode({type_id(second): {}})


def test_only_known_classes_are_made() -> None:
    with pytest.raises(CodecError, match="There is no value 'Query'"):
        decode({"Query": {"text": "q"}}, Any, classes={"Span": Span})
    assert decode("grown", Operator, classes={"grown": increased}) == increased
