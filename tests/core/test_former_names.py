"""Former names of methods and functions that users call or define."""

from __future__ import annotations

from typing import Any

import pytest

from spolia import Budget, dump, load
from spolia.core.combinators import Identity
from spolia.core.redaction import Redactors, label_places
from spolia.core.run_context import reach
from spolia.databases.database import QueryRows
from spolia.testing import HashingEmbedder
from spolia.types import Chain, Query, Usage


def test_a_redactor_may_have_its_method_by_the_former_name() -> None:
    redactor: Any = type("Names", (), {"found": lambda self, text: [(0, 3, "person")]})()
    for accepted in (redactor, Redactors((redactor,))):
        with pytest.warns(DeprecationWarning, match=r"Names\.found is find_sensitive now"):
            assert label_places("Ann came.", accepted) == "[PERSON] came."


def test_former_names_are_accepted_with_a_warning() -> None:
    former: Any = load
    with pytest.warns(DeprecationWarning, match=r"load\(given=…\) is load\(objects=…\) now"):
        assert former("[Identity]", given={}) == load("[Identity]")
    former = dump
    with pytest.warns(DeprecationWarning, match=r"dump\(given=…\) is dump\(objects=…\) now"):
        assert former(Identity(), given={}) == dump(Identity())
    former = Budget(calls=1)
    with pytest.warns(DeprecationWarning, match=r"is Budget\.refuses\(usage=…\) now"):
        assert not former.refuses(spent=Usage(), wanted=Usage(calls=1), optional=False)
    chain: Any = Chain(Query("Who?"), (("Where?", "Espoo."),))
    rows: Any = QueryRows(("name",), (("Ann",),))
    with pytest.warns(DeprecationWarning, match="format_text now"):
        assert chain.written(100) == chain.format_text(100)
    with pytest.warns(DeprecationWarning, match="to_markdown now"):
        assert rows.written() == rows.to_markdown()
    with pytest.warns(DeprecationWarning, match="record_access now"):
        reach(HashingEmbedder())
