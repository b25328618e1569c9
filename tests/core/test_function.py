"""Plain functions with keyword arguments: as plain as operators with fields."""

from __future__ import annotations

import pickle

import pytest

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
    again = pickle.loads(pickle.dumps(flow))
    assert (again, again.digest) == (flow, flow.digest)
