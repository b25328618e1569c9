"""Plain functions with keyword arguments: as plain as operators with fields."""

from __future__ import annotations

import pickle

import pytest

from spolia.core.combinators import Choice, Identity, settle
from spolia.core.function import step
from spolia.core.operator import Operator
from spolia.errors import WiringError
from spolia.flow_files.files import dump, load


@step
def cut(text: str, *, at: int = 2, marks: tuple[str, ...] = ()) -> str:
    return text[:at] + "".join(marks)


OTHER = cut.but(at=3, marks=("…", "!"))


def test_other_arguments_make_another_operator() -> None:
    assert (cut("stone"), OTHER("stone"), cut.but(at=1)("stone")) == ("st", "sto…!", "s")
    assert cut.but(at=3).but(marks=("…", "!")) == OTHER
    assert len({cut.digest, OTHER.digest, cut.but(at=3).digest}) == 3
    assert cut.but(at=2).digest != cut.but(at=3).digest


def test_an_argument_that_the_function_has_not_is_refused() -> None:
    with pytest.raises(WiringError, match=r"cut has no keyword argument .size"):
        cut.but(size=3)
    with pytest.raises(WiringError, match="no keyword argument 'text'"):
        cut.but(text="x")


@pytest.mark.parametrize("flow", [OTHER, OTHER >> cut, cut >> cut, cut.vary(at=(2, 3)), OTHER.vary(marks=((), ("a",)))])
def test_it_goes_to_a_file_to_text_and_to_another_process(flow: Operator[str, str]) -> None:
    assert load(dump(flow), operators=(cut,)) == flow
    assert eval(repr(flow)) == flow
    unpickled = pickle.loads(pickle.dumps(flow))
    assert (unpickled, unpickled.digest) == (flow, flow.digest)


@step
def repeated(text: str, *, times: int, before: Operator[str, str]) -> str:
    return before(text) * times


@step
def shouted(text: str) -> str:
    return text.upper()


def test_keyword_arguments_are_what_fields_are() -> None:
    changed_step = repeated.but(times=2, before=shouted)
    assert changed_step("ab") == "ABAB"
    assert [place for place, _ in changed_step.inner()] == ["arguments.before"]
    assert changed_step == repeated.but(before=shouted, times=2).but(times=2)
    assert changed_step.digest != changed_step.but(times=3).digest
    assert (changed_step.but(before=Choice(shouted, Identity())) >> shouted).takes() is str
    assert [settled_flow("ab") for _, settled_flow in settle(changed_step.but(before=Choice(shouted, Identity())))] == [
        "ABAB",
        "abab",
    ]


def test_the_short_name_of_a_step_has_its_scalar_arguments_alone() -> None:
    changed_step = repeated.but(times=2, before=shouted)
    assert changed_step.short == "repeated.but(times=2)"
    assert repr(changed_step) == "repeated.but(times=2, before=shouted)"
    assert repeated.but(before=shouted).short == "repeated"


def test_a_keyword_argument_without_a_default_has_to_be_given() -> None:
    with pytest.raises(WiringError, match=r"repeated lacks before, times. Write repeated.but\(before=..., times=...\)"):
        repeated("ab")
    with pytest.raises(WiringError, match=r"repeated lacks before. Write repeated.but\(before=...\)"):
        shouted >> repeated.but(times=2)
    with pytest.raises(WiringError, match=r"one value, a str. To change settings, write repeated.but\(times=2\)"):
        repeated(times=2)  # type: ignore[arg-type]
    with pytest.raises(WiringError, match=r"Write repeated\(value\)"):
        repeated()
    with pytest.raises(WiringError, match=r"repeated has times='2' \(str\), not int"):
        repeated.but(times="2")
    with pytest.raises(WiringError, match="takes 2 values"):
        step(lambda item, two: item)
