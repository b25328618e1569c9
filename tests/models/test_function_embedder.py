"""A function of one's own as an embedder."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from spolia.errors import ModelError
from spolia.models import FunctionEmbedder
from spolia.testing import check_embedder


def letters(texts: list[str]) -> list[list[int]]:
    return [[1 + text.count(letter) for letter in "aeiou"] for text in texts]


def marked(texts: list[str], kind: str) -> list[list[int]]:
    return [[len(text), 100 * (kind == "query")] for text in texts]


def test_a_function_is_an_embedder_known_by_its_name_and_code() -> None:
    own = FunctionEmbedder(letters)
    check_embedder(own)
    assert own.name == "letters"
    assert own == FunctionEmbedder(letters) != FunctionEmbedder(letters, "other")
    assert own.fingerprint() != FunctionEmbedder(marked, "letters").fingerprint()
    assert FunctionEmbedder(partial(letters), "partial").fingerprint() is None


def test_a_function_that_takes_the_kind_gets_it() -> None:
    own = FunctionEmbedder(marked)
    assert (own.embed(["sea"], kind="query") != own.embed(["sea"], kind="passage")).any()


@pytest.mark.parametrize("rows", [[], [[0.0]], [[np.nan]], [1.0]])
def test_rows_that_are_no_vectors_are_refused(rows: list[object]) -> None:
    with pytest.raises(ModelError, match="one row of finite numbers"):
        FunctionEmbedder(lambda texts: rows, "wrong").embed(["sea"], kind="query")


def test_a_lambda_needs_a_name() -> None:
    with pytest.raises(ModelError, match="name="):
        FunctionEmbedder(lambda texts: texts)
