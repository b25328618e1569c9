"""The decorator of tests over many cases."""

from __future__ import annotations

import pytest

from tests.cases import check_each


def test_each_case_that_fails_is_reported_with_its_values() -> None:
    tried = []

    @check_each("number", [1, 2, 3])
    @check_each(("sign", "limit"), [("+", 3), ("-", 1)])
    def is_below(number: int, sign: str, limit: int) -> None:
        tried.append((number, sign))
        assert number < limit

    with pytest.raises(BaseExceptionGroup, match="3 of 3 cases fail") as raised:
        is_below()
    assert tried == [(1, "+"), (1, "-"), (2, "+"), (2, "-"), (3, "+"), (3, "-")]
    first, _, nested = raised.value.exceptions
    assert first.__notes__ == ["Case: ('-', 1)", "Case: (1,)"]
    assert isinstance(nested, BaseExceptionGroup)


def test_a_test_that_expects_an_error_fails_for_its_case() -> None:
    @check_each("text", ["1", "one"])
    def is_refused(text: str) -> None:
        with pytest.raises(ValueError, match="invalid literal"):
            int(text)

    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE") as raised:
        is_refused()
    assert raised.value.__notes__ == ["Case: ('1',)"]
