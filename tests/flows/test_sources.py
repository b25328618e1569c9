"""Published flows of several sources, of which one fails or finds nothing."""

from __future__ import annotations

import ast
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from spolia import Answer, Query, Ranking, Run, step
from spolia.core.run_context import collect_degradations
from spolia.errors import QueryError
from spolia.flows.catalogue import MODULES
from tests.cases import check_each
from tests.flows.test_published import (
    ASKED,
    LOOK,
    TEXTS,
    Model,
    Scores,
    build_flow,
    nowhere,
    preferring,
    ranking_of,
    turn_with_answer,
    web,
)

ACTS = Model((("<log", "<thought>!</thought><answer>Espoo</answer>"), ("", LOOK)))
READS = Model((("<passage>[\\s\\S]*Salt", "no"), ("<passage>", "yes"), ("", "Espoo [1].")))
SEVERAL: dict[str, Model] = {
    "naive-both": READS, "crag": READS, "crag-grader": READS, "react": ACTS, "react-concat": ACTS,
    "prefrag": preferring(("<log", turn_with_answer("Espoo", "CORRECT")), ("", LOOK)),
    "prefrag-prompt": preferring(("<log", turn_with_answer("Espoo", "CORRECT")), ("", LOOK)),
    "prefrag-no-preference": preferring(("<log", turn_with_answer("Espoo", "CORRECT")), ("", LOOK)),
}  # fmt: skip


@step
def down(query: Query) -> Ranking:
    raise OSError("The disk is gone.")


@step
def away(query: Query) -> Ranking:
    raise OSError("The line is cut.")


@step
def refusing(query: Query) -> Ranking:
    raise QueryError("The question asks for a field that is not there.")


@step
def archive(query: Query) -> Ranking:
    return ranking_of(query, "archive", TEXTS[:1])


def run_flow(name: str, model: Model, **parts: Any) -> tuple[Answer, list[str], list[str]]:
    """The answer, the sources that found something, and what was out of order."""
    flow = build_flow(name, model, **{"scorer": Scores(), **parts})
    with Run() as run, run.lane() as lane, collect_degradations() as heard:
        answer = flow(ASKED)
    return answer, [ranking.source for ranking in lane.retrievals], heard


def evidence(answer: Answer) -> set[str]:
    """The sources of its passages."""
    assert answer.evidence is not None
    return {node.id.rstrip("0123456789/") for node in answer.evidence.nodes}


@check_each("name", SEVERAL)
def test_a_source_that_fails_is_passed_over_where_there_is_another_one(name: str) -> None:
    for parts, left in (({"search": down}, "web"), ({"web": down}, "local")):
        answer, _, heard = run_flow(name, SEVERAL[name], **parts)
        assert answer.text.startswith("Espoo")
        assert evidence(answer) <= {left}
        is_told = not (name in ("react", "prefrag-prompt") and left == "web")  # these search the web alone
        is_told = is_told and not (name == "prefrag" and left == "local")  # which helps at once
        assert any("The disk is gone" in prompt for prompt in heard) is is_told


@check_each("name", SEVERAL)
def test_where_all_sources_fail_the_question_fails_with_the_first_failure(name: str) -> None:
    first = "line is cut" if name in ("react", "prefrag-prompt") else "disk is gone"  # the one that the model named
    with pytest.raises(Exception, match=first):
        run_flow(name, SEVERAL[name], search=down, web=away)


@check_each("name", SEVERAL)
def test_what_is_wrong_with_the_question_is_no_failure_of_a_source(name: str) -> None:
    with pytest.raises(QueryError):
        run_flow(name, SEVERAL[name], search=refusing, web=refusing if name in ("react", "prefrag-prompt") else web)


@pytest.mark.parametrize("other", [down, nowhere])
def test_prefrag_keeps_the_passages_of_the_preferred_source_where_the_named_one_gives_none(other: Any) -> None:
    flow = build_flow("prefrag", preferring(("", LOOK)), web=other)
    with Run() as run, run.lane() as lane:
        answer = flow(ASKED)
    assert evidence(answer) == {"local"}
    assert answer.stop_reason == "forced"
    assert lane.usage.calls == 4 + 3 + 1
    flagged = "web failed and is skipped" if other is down else "web found nothing, and what local found is kept"
    assert sum(flagged in reason for _, reason, _ in lane.reasons) == 3


def test_prefrag_goes_to_the_named_source_where_the_preferred_one_fails() -> None:
    model = preferring(("", LOOK.replace("web", "archive")))
    _, sources, _ = run_flow("prefrag", model, search=down, more=(("archive", archive),))
    assert sources == ["archive"] * 4
    _, sources, _ = run_flow("prefrag", model, search=down, web=web, more=(("archive", away),))
    assert sources == ["web"] * 4


def test_a_flow_is_a_page_long() -> None:
    """Without comments, and without the docstring of the module, which says where it departs from the paper."""
    sources = {
        module: Path(str(spec.origin)).read_text("utf-8")
        for module in set(MODULES.values())
        if (spec := find_spec(module)) is not None
    }
    lines = {
        module: sum(not line.lstrip().startswith("#") for line in source.splitlines())
        - len((ast.get_docstring(ast.parse(source)) or "").splitlines())
        for module, source in sources.items()
    }
    assert median(lines.values()) <= 60
    assert lines["spolia.flows.prefrag"] <= 98
    assert lines["spolia.flows.corag"] <= 98
