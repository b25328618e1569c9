"""Cohen's kappa against values worked out by hand."""

from __future__ import annotations

from math import nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spolia.errors import MeasureError
from spolia.evaluation.measures.judged.calibration import agreement
from tests.cases import check_each

BY_HAND = [
    # 20 yes-yes, 5 yes-no, 10 no-yes, 15 no-no: observed 35/50, expected (25·30 + 25·20) / 2500 = 1/2
    (["y"] * 20 + ["n"] * 5 + ["y"] * 10 + ["n"] * 15, ["y"] * 25 + ["n"] * 25, (0.7 - 0.5) / (1 - 0.5)),
    ([1, 0], [1, 0], 1.0),
    ([0, 1], [1, 0], (0 - 0.5) / (1 - 0.5)),
    # three grades: observed 2/4, expected (2·1 + 2·2 + 0·1) / 16
    ([1, 2, 2, 3], [1, 1, 2, 2], (2 / 4 - 6 / 16) / (1 - 6 / 16)),
    ([1, 1], [1, 1], None),  # one word shows nothing
    ([], [], None),
    ([None, None], [1, 0], None),
]


@check_each(("verdicts", "labels", "kappa"), BY_HAND)
def test_kappa_is_what_one_works_out_by_hand(
    verdicts: list[str | int | None], labels: list[str | int], kappa: float | None
) -> None:
    found_kappa = agreement(verdicts, labels).kappa
    assert found_kappa == (kappa if kappa is None else pytest.approx(kappa, abs=1e-12))


def test_what_is_undetermined_is_counted_apart() -> None:
    found_agreement = agreement([1.0, None, nan, 0.0, True], [1, 1, 0, None, True])
    assert (found_agreement.n, found_agreement.undetermined) == (2, 3)
    assert found_agreement.confusion == ((("1", "1"), 2),)
    assert str(agreement([None], [1])) == "kappa undefined, nothing of 0 the same, 1 undetermined"


@pytest.mark.slow
@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("abc")), max_size=30))
def test_kappa_is_symmetric_and_at_most_1(pairs: list[tuple[str, str]]) -> None:
    ours, theirs = [kappa for kappa, _ in pairs], [reverse_kappa for _, reverse_kappa in pairs]
    kappa, reverse_kappa = agreement(ours, theirs).kappa, agreement(theirs, ours).kappa
    assert kappa == (reverse_kappa if reverse_kappa is None else pytest.approx(reverse_kappa))
    assert kappa is None or kappa <= 1 + 1e-12


def test_unequal_lists_are_refused() -> None:
    with pytest.raises(MeasureError, match="Got 1 verdicts and 2 labels"):
        agreement([1], [1, 0])
