"""Published flows whose judge cannot be asked: all of them go on by one rule, and say so."""

from __future__ import annotations

from collections.abc import Sequence

from spolia import Query, Ranking, Run, step
from spolia.core.run_context import collect_degradations
from spolia.errors import ModelRejected, ModelUnavailable
from spolia.flows.catalogue import find_flow, list_flows
from tests.cases import check_each
from tests.flows.test_published import ASKED, Scores, build_flow, hopper, local, web

JUDGED = [flow.name for flow in list_flows() if "scorer" in flow.needs]
GOES_ON = {"crag": ["local", "web"], "dr-rag": ["local"] * 4, "corag-classifier": ["local"] * 7}
"""Sources that are searched: CRAG takes both, DR-RAG keeps all passages, CoRAG asks all its sub-questions."""


class Away(Scores):
    def scores(self, query: str, texts: Sequence[str]) -> tuple[float, ...]:
        raise ModelUnavailable("the server answers with status 503")


class Refusing(Scores):
    def scores(self, query: str, texts: Sequence[str]) -> tuple[float, ...]:
        raise ModelRejected("the key is not accepted")


def test_the_flows_with_a_judge_are_found() -> None:
    assert set(JUDGED) >= {*GOES_ON, "corag-classifier-best-of-n", "corag-classifier-tree"}


@check_each("judge", [Away(), Refusing()])
@check_each("name", JUDGED)
def test_a_flow_whose_judge_is_away_goes_on_without_a_verdict(name: str, judge: Scores) -> None:
    flow = build_flow(
        name, hopper(*"abcdef"), scorer=judge, **({"steps": 2} if "tree" in name or "best" in name else {})
    )
    with collect_degradations() as reasons, Run(cache=None) as run, run.lane() as lane:
        answer = flow(ASKED)
    assert answer.text == "Espoo [1]"
    assert answer.stop_reason in find_flow(name).stop_reasons
    assert answer.stop_reason != "sufficient"
    assert any("A judge could not be asked" in reason for reason in reasons)
    if name in GOES_ON:
        assert [ranking.source for ranking in lane.retrievals] == GOES_ON[name]


def test_crag_does_not_take_the_scores_of_retrieval_for_those_of_its_evaluator() -> None:
    """Scores of BM25 are above every threshold of CRAG's."""

    @step
    def certain(query: Query) -> Ranking:
        ranking = local(query)
        return ranking.but(hits=tuple(hit.but(score=12.0) for hit in ranking.hits))

    with collect_degradations(), Run(cache=None) as run, run.lane() as lane:
        build_flow("crag", hopper(), search=certain, web=web, scorer=Away())(ASKED)
    assert [ranking.source for ranking in lane.retrievals] == ["local", "web"]
