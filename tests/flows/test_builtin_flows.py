from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from spolia.errors import WiringError
from spolia.flow_files.built_in_flows import (
    BUILT_IN,
    bm25,
    choose,
    default,
    dense,
    find_builder,
    find_language_gap,
    find_mismatch,
    hybrid,
    naive,
)
from spolia.flows.catalogue import MODULES
from spolia.generation.extract import Extract
from spolia.generation.reader import Reader
from spolia.models.onnx.minilm import MiniLM
from spolia.models.prompting.stand_in_models import ScriptedModel
from spolia.retrieval.bm25 import BM25
from spolia.stores.corpus import NodeGroup
from spolia.types import Query
from tests.cases import check_each
from tests.flows.test_published import Model, Scores
from tests.retrieval.conftest import store
from tests.retrieval.test_dense import Words

ENGLISH = {
    "moon": "Tides are long waves that are caused by the pull of the moon and the sun on the water of the sea.",
    "bread": "Bread is made of flour, water and yeast, and is baked in an oven until the crust is brown.",
    "paris": "Paris became the capital of France again when the king returned to the city from Bourges.",
}


@dataclass(frozen=True)
class Letters(Words):
    """An embedder that knows ASCII, and whose tokens are of `per_token` letters."""

    per_token: int = 8

    def tokens(self, texts: Sequence[str]) -> list[int]:
        return [2 + sum(-(-len(word) // self.per_token) for word in text.split()) for text in texts]

    def covers(self, text: str) -> float:
        return sum(map(str.isascii, text)) / len(text) if text else 1.0


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> NodeGroup:
    return store(tmp_path_factory.mktemp("flows") / "english.spolia", ENGLISH, embedder=Letters())


@pytest.mark.slow
@check_each("name", BUILT_IN)
@pytest.mark.filterwarnings("ignore::spolia.errors.DegradedWarning")
def test_every_named_flow_finds_or_answers(group: NodeGroup, name: str) -> None:
    more = {"web": BM25(group), "scorer": Scores(otherwise=0.9)} if name in MODULES and name != "naive" else {}
    model = Model(("<thought>Known.</thought><answer>By the moon [1].</answer>",))
    result = find_builder(name)(group, Letters(), model, 3, **more)(Query("What causes the tides?"))
    assert "moon" in repr(result)


def test_an_unknown_flow_is_refused_with_the_names() -> None:
    with pytest.raises(
        WiringError, match=r"no flow 'magic'\. Write bm25, dense, hybrid, multi-hop, default, naive, one that"
    ):
        find_builder("magic")


def test_what_needs_an_embedder_says_so(group: NodeGroup) -> None:
    for flow in (dense, hybrid):
        with pytest.raises(WiringError, match="needs an embedder"):
            flow(group)
    assert bm25(group.corpus) == bm25(group) == BM25(group)


def test_each_hit_of_hybrid_says_what_each_source_scored(group: NodeGroup) -> None:
    flow = hybrid(group, Letters(), top_k=2)
    ranking = flow(Query("moon and tides"))
    assert [source for source, _ in ranking.hits[0].parts] == ["bm25", "dense"]
    assert len(ranking) == 2
    assert ranking.nodes[0].id == "moon"


def test_the_default_is_hybrid_where_the_embedder_knows_the_language(group: NodeGroup) -> None:
    flow, reason = choose(group, Letters())
    assert flow == hybrid(group, Letters()) == default(group, Letters())
    assert reason == "hybrid: words@1 knows the words of the corpus"


@pytest.mark.parametrize(
    ("embedder", "reason"),
    [
        (None, "bm25: there is no embedder"),
        (Letters("words@2"), "bm25: the corpus was indexed with words@1, not words@2"),
        (Letters(per_token=2), "bm25: words@1 breaks the corpus's words into 2."),
    ],
)
def test_the_default_is_bm25_elsewhere_and_says_why(group: NodeGroup, embedder: Letters | None, reason: str) -> None:
    flow, explanation = choose(group, embedder, 7)
    assert flow == bm25(group, top_k=7)
    assert explanation.startswith(reason)
    assert "\n" not in explanation


def test_clarifications_are_compared_by_words_where_the_embedder_does_not_suit(group: NodeGroup) -> None:
    build = find_builder("tree-of-clarifications")
    suiting, unsuiting = (build(group, embedder, Model(("none",))) for embedder in (Letters(), Letters(per_token=2)))
    assert ("MMR" in repr(suiting), "MMR" in repr(unsuiting)) == (True, False)


def test_a_corpus_without_vectors_is_searched_by_words(tmp_path: Path) -> None:
    plain = store(tmp_path / "plain.spolia", ENGLISH)
    assert choose(plain, Letters()) == (bm25(plain), "bm25: the corpus was indexed without an embedder")


def test_an_embedder_without_weights_is_not_used(tmp_path: Path) -> None:
    missing = MiniLM(weights=str(tmp_path / "nosuch"))
    group = store(tmp_path / "a.spolia", ENGLISH, embedder=Letters(missing.name))
    assert "cannot be used" in find_mismatch(group, missing)


def test_what_suits_is_judged_by_characters_and_by_broken_words() -> None:
    assert find_language_gap(list(ENGLISH.values()), Letters()) == ""
    assert "knows" in find_language_gap(["東京タワーは東京にある。"], Letters())
    assert find_language_gap([], Letters()) == ""


@pytest.mark.slow
def test_minilm_suits_english_alone(shared_datasets: Path) -> None:
    from spolia.evaluation.data.dataset import DataSet

    pytest.importorskip("tokenizers")
    reasons = {
        name: find_language_gap(
            [passage.text for passage in DataSet(str(shared_datasets / name)).passages()][::8], MiniLM()
        )
        for name in (
            "xquad_en",
            "squad2_dev",
            "hotpotqa",
            "xquad_es",
            "xquad_ar",
            "xquad_th",
            "xquad_zh",
            "korquad_dev",
        )
    }
    assert [name for name, reason in reasons.items() if not reason] == ["xquad_en", "squad2_dev", "hotpotqa"]


def test_naive_asks_the_model_or_quotes(group: NodeGroup) -> None:
    flow = naive(group, Letters(), ScriptedModel(("By the moon [1].",)))
    assert isinstance(flow.tail()[0], Reader)
    assert flow(Query("What causes the tides?")).citations[0].node == "moon"
    assert naive(group, Letters()) == hybrid(group, Letters(), top_k=5) >> Extract(Letters(), passages=5)
    assert naive(group) == bm25(group, top_k=5) >> Extract(None, passages=5)
    assert "moon" in naive(group)(Query("What causes the tides?")).text
