"""What can be a dimension of a space: each is tuned as it is written in Python and in a flow file."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest

from spolia.core.combinators import Branch, Choice, Identity, Stopped
from spolia.core.combinators.space import Space, settle
from spolia.core.function import step
from spolia.core.operator import Operator
from spolia.flow_files.files import dump, load
from spolia.flows.corag import corag
from spolia.flows.prefrag import prefrag
from spolia.generation.extract import Extract
from spolia.generation.prompt import FString
from spolia.generation.reader import Reader
from spolia.indexing.splitters.sized_splitter import SlidingWindow
from spolia.indexing.splitters.text_units import Paragraphs, Sentences
from spolia.indexing.sync.sync import sync
from spolia.models.prompting.stand_in_models import ScriptedModel
from spolia.optimizer.tuning import tune
from spolia.orchestration.rank_fusion import ConvexCombination, ReciprocalRankFusion
from spolia.post_retrieval.boosts import TitleBoost
from spolia.post_retrieval.selection import Cut
from spolia.retrieval.bm25 import BM25
from spolia.retrieval.dense import Dense
from spolia.retrieval.graph.edges import InOrder
from spolia.retrieval.graph.node_graph import NodeGraph
from spolia.retrieval.graph.walk import Hops
from spolia.retrieval.tfidf import TFIDF
from spolia.stores.corpus import Corpus, NodeGroup
from spolia.stores.definition import Definition, Embedding
from spolia.stores.lexical.analysis import Analyzer
from spolia.testing import HashingEmbedder
from spolia.types import Answer, Chain, Item, Query, Quote, Verdict

SMALL, LARGE = HashingEmbedder(16), HashingEmbedder(64)
LIGHTHOUSES = 12


@dataclass(frozen=True)
class Store:
    """Lighthouses in a store, and in another one that was read by another parser."""

    corpus: Corpus
    shouted: Corpus

    @property
    def given(self) -> Mapping[str, Any]:
        return {
            "chunks": self.corpus.group(), "corpus": self.corpus, "shouted": self.shouted, "llm": MODEL,
            "small": SMALL, "large": LARGE,
        }  # fmt: skip


MODEL = ScriptedModel((("", "In 1800."),))


def fact(number: int) -> str:
    return f"Lighthouse {number} was first lit in {1800 + number}."


def shouting(blob: Any) -> str:
    """A parser that loses the years."""
    return "".join(" " if character.isdigit() else character for character in blob.data.decode())


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    folder = tmp_path_factory.mktemp("lighthouses")
    (texts := folder / "texts").mkdir()
    for number in range(LIGHTHOUSES):
        filler = " ".join(f"Its keeper had {n} goats and {n + 1} lamps." for n in range(12))
        (texts / f"{number}.txt").write_text(f"{filler}\n\n{fact(number)} It is tall.\n\n{filler}")
    new_store = Store(Corpus(str(folder / "facts.spolia")), Corpus(str(folder / "shouted.spolia")))
    sync(texts, new_store.corpus)
    sync(texts, new_store.shouted, readers={"*.txt": shouting})
    return new_store


def by_spans(n: int = LIGHTHOUSES) -> list[Item]:
    """Gold as spans, by which flows over different chunks are compared."""
    return [
        Item(
            f"q{number}",
            f"When was lighthouse {number} lit?",
            ("In 1800",),
            gold=((Quote(f"{number}.txt", text=fact(number)),),),
        )
        for number in range(n)
    ]


def bm25_yaml(group: str = "{use: chunks}", more: str = "") -> str:
    return f"BM25: {{group: {group}{more}}}"


def group_yaml(group: str, definition: str) -> str:
    return f"{{corpus: {{use: corpus}}, name: {group}, definition: {definition}}}"


SPLITTERS = {"tiny": Sentences(size=20), "windows": SlidingWindow(size=60), "paragraphs": Paragraphs()}
CHUNKING = """
Vary:
  body: {BM25: {group: {use: chunks}, top_k: 1}}
  ranges:
    group:
    - {corpus: {use: corpus}, name: tiny, definition: {transform: {Sentences: {size: 20}}}}
    - {corpus: {use: corpus}, name: windows, definition: {transform: {SlidingWindow: {size: 60}}}}
    - {corpus: {use: corpus}, name: paragraphs, definition: {transform: Paragraphs}}
  names: {group: chunking}
"""
PARSER = """
Vary:
  body: {BM25: {group: {use: chunks}}}
  ranges: {group: [{use: chunks}, {corpus: {use: shouted}}]}
  names: {group: parser}
"""
TOKENIZER = """
Vary:
  body: {BM25: {group: {use: chunks}}}
  ranges:
    group:
    - {corpus: {use: corpus}, name: stems, definition: {transform: Sentences, analyzer: {stem: english}}}
    - {corpus: {use: corpus}, name: letters, definition: {transform: Sentences, analyzer: {stem: "", ngram: 3}}}
  names: {group: tokenizer}
"""
EMBEDDED = "{corpus: {use: corpus}, name: both, definition: {transform: Sentences, "
EMBEDDED += "embeddings: [{embedder: {use: small}}, {embedder: {use: large}}]}}"
EMBEDDER = f"""
Vary:
  body: {{Dense: {{group: {EMBEDDED}, embedder: {{use: small}}}}}}
  ranges: {{embedder: [{{use: small}}, {{use: large}}]}}
  names: {{embedder: embedder}}
"""
PROMPT = """
- BM25: {group: {use: chunks}}
- Vary:
    body: {Reader: {llm: {use: llm}}}
    ranges: {prompt: [answer, brief]}
    names: {prompt: prompt}
"""
SHOTS = """
- BM25: {group: {use: chunks}}
- Vary:
    body: {Reader: {llm: {use: llm}}}
    ranges:
      maker:
      - null
      - {FString: {template: "Who built it? Ann.\\nWho fell? Bob.\\n{{passages}}\\n{{question}}"}}
    names: {maker: examples}
"""
TOP_K = """
Vary:
  body: {BM25: {group: {use: chunks}}}
  ranges: {top_k: [1, 10]}
  names: {top_k: depth}
"""
FUSION = """
- Branch: [{BM25: {group: {use: chunks}}}, {TFIDF: {group: {use: chunks}}}]
- Choice:
    options:
    - Vary: {body: ReciprocalRankFusion, ranges: {k: [4.0, 60.0]}}
    - Vary:
        body: {ConvexCombination: {weights: [[bm25, 1.0], [tf-idf, 1.0]]}}
        ranges: {weights: [[[bm25, 1.0], [tf-idf, 0.0]], [[bm25, 0.5], [tf-idf, 0.5]]]}
    name: fusion
"""
WEIGHTS = """
- Branch:
  - Choice: {options: [{BM25: {group: {use: chunks}}}, {TFIDF: {group: {use: chunks}}}], name: words}
  - BM25: {group: {use: corpus-sentences}, source: dense}
- ConvexCombination
"""
GRAPH = """
- BM25: {group: {corpus: {use: corpus}, name: page}, top_k: 3}
- Vary:
    body: {Hops: {graph: {group: {corpus: {use: corpus}, name: page}, edges: [InOrder]}}}
    ranges: {hops: [1, 2]}
    names: {hops: hops}
"""
NOTHING = """
- Choice: {options: [Identity, tests:asked_shorter], name: question}
- BM25: {group: {use: chunks}}
- Choice: {options: [Identity, TitleBoost], name: boost}
- Choice: {options: [Identity, {Cut: {top_k: 2}}], name: cut}
- Extract
- Choice: {options: [Identity, tests:last_word], name: answer}
"""


@step
def cut(text: str, *, at: int = 1) -> str:
    return text[:at]


@step
def at_once(chain: Chain) -> Verdict:
    return Verdict(stop=True)


@step
def asked_shorter(query: Query) -> Query:
    return query.asking(query.text.replace("When was ", ""))


@step
def last_word(answer: Answer) -> Answer:
    return answer.but(text=answer.text.rstrip(".").split(" ")[-1])


def group_of(corpus: Corpus, name: str, transform: Any, **more: Any) -> NodeGroup:
    return corpus.group(name, Definition(transform, **more))


def spaces(store: Store) -> dict[str, tuple[Operator[Query, Any], str]]:
    """Each dimension as a space: in Python, and as a flow file."""
    corpus, chunks = store.corpus, store.corpus.group()
    cuts = [group_of(corpus, name, transform) for name, transform in SPLITTERS.items()]
    stems, letters = Analyzer(stem="english"), Analyzer(stem="", ngram=3)
    terms = [group_of(corpus, n, Sentences(), analyzer=a) for n, a in (("stems", stems), ("letters", letters))]
    group = group_of(corpus, "both", Sentences(), embeddings=(Embedding(SMALL), Embedding(LARGE)))
    shots = FString("Who built it? Ann.\nWho fell? Bob.\n{{passages}}\n{{question}}")
    search, words, reader = BM25(chunks), TFIDF(chunks), Reader(MODEL)
    weights = ((("bm25", 1.0), ("tf-idf", 0.0)), (("bm25", 0.5), ("tf-idf", 0.5)))
    weighed = ConvexCombination((("bm25", 1.0), ("tf-idf", 1.0))).vary(weights=weights)
    page = corpus.group("page")
    over_pages = Hops(NodeGraph(page, (InOrder(),))).vary("hops", hops=(1, 2))
    words_or = Branch(Choice(search, words, name="words"), BM25(corpus.group("sentence"), source="dense"))
    nothing = Choice(Identity(), asked_shorter, name="question") >> search
    nothing = nothing >> Choice(Identity(), TitleBoost(), name="boost") >> Choice(Identity(), Cut(2), name="cut")
    return {
        "parser": (search.vary("parser", group=(chunks, store.shouted.group())), PARSER),
        "chunk size and splitter": (BM25(chunks, 1).vary("chunking", group=cuts), CHUNKING),
        "tokenizer": (search.vary("tokenizer", group=terms), TOKENIZER),
        "embedder": (Dense(group, SMALL).vary("embedder", embedder=(SMALL, LARGE)), EMBEDDER),
        "prompt": (search >> reader.vary("prompt", prompt=("answer", "brief")), PROMPT),
        "few-shot examples": (search >> reader.vary("examples", maker=(None, shots)), SHOTS),
        "top_k": (search.vary("depth", top_k=(1, 10)), TOP_K),
        "fusion": (
            Branch(search, words) >> Choice(ReciprocalRankFusion().vary(k=(4.0, 60.0)), weighed, name="fusion"),
            FUSION,
        ),
        "weights under a choice": (words_or >> ConvexCombination(), WEIGHTS),
        "graph over an unbuilt group": (BM25(page, 3) >> over_pages, GRAPH),
        "do nothing": (nothing >> Extract() >> Choice(Identity(), last_word, name="answer"), NOTHING),
    }


DIMENSIONS = {
    "parser": 2, "chunk size and splitter": 3, "tokenizer": 2, "embedder": 2, "prompt": 2, "few-shot examples": 2,
    "top_k": 2, "fusion": 4, "weights under a choice": 2, "graph over an unbuilt group": 2, "do nothing": 16,
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", DIMENSIONS)
def test_it_is_a_dimension_in_python_and_in_a_flow_file(store: Store, name: str) -> None:
    space, file = spaces(store)[name]
    inputs = {**store.given, "corpus-sentences": store.corpus.group("sentence")}
    assert load(file, inputs, [asked_shorter, last_word]) == space
    assert load(dump(space, inputs), inputs, [asked_shorter, last_word]) == space
    tuned_flow = tune(space, by_spans(6), "F1" if name in ("prompt", "few-shot examples", "do nothing") else "MRR")
    assert (tuned_flow.flows, tuned_flow.flows_asked, tuned_flow.excluded) == (DIMENSIONS[name], DIMENSIONS[name], ())
    assert tuned_flow.score.mean > 0


@pytest.mark.slow
def test_stop_rules_hops_and_source_preference_of_adaptive_flows_are_dimensions(store: Store) -> None:
    search, web = BM25(store.corpus.group(), 2), BM25(store.corpus.group("page"), 2, "web")
    begin, loop, end = corag(MODEL, search).steps  # type: ignore[attr-defined]
    pairs = loop.body.vary("pairs", pairs=(1, 3))
    stopping = loop.but(body=pairs.body).vary("hops", max_steps=(1, 6)).vary("stop", until=(Stopped(), at_once))
    start, turns, finish = prefrag(MODEL, search, web).steps  # type: ignore[attr-defined]
    orders = [(("local", search), ("web", web)), (("web", web), ("local", search))]
    preferring = turns.but(body=turns.body.vary("preferred", sources=orders))
    for space, flows in ((begin >> stopping >> end, 4), (begin >> loop.but(body=pairs) >> end, 2),
                         (start >> preferring >> finish, 2)):  # fmt: skip
        file = dump(space, store.given)
        assert load(file, store.given, [at_once]) == space
        tuned_flow = tune(space, by_spans(4), "F1", degraded="ok")
        assert (tuned_flow.flows, tuned_flow.flows_asked, tuned_flow.excluded) == (flows, flows, ())


@pytest.mark.slow
def test_a_space_of_10_to_the_23_flows_is_drawn_from_and_walked_without_being_listed() -> None:
    places = {f"place {index}": cut.vary(f"place {index}", at=range(10)) for index in range(22)}
    flow: Operator[Any, Any] = Choice(*(Identity() for _ in range(10)), name="last")
    for place in places.values():
        flow = flow >> place
    space = Space(flow)
    assert space.size == 10**23
    point = space.draw_point(Random(1))
    near = list(space.neighbours(point))
    assert len(near) < 22 * 2 + 10
    for neighbour in near:
        space.decide(neighbour)
        assert sum(point[name] != neighbour[name] for name in point) == 1


def test_candidates_of_one_place_take_one_weight_under_their_default_names(store: Store) -> None:
    chunks = store.corpus.group()
    space = (
        Branch(Choice(BM25(chunks), TFIDF(chunks) >> Cut(3), name="words"), Dense(chunks, SMALL)) >> ConvexCombination()
    )
    _, tfidf = settled_flows(space)
    assert "TFIDF(group=" in repr(tfidf)
    assert "source='bm25'" in repr(tfidf)
    own = Choice(BM25(chunks), TFIDF(chunks, source="mine"), name="words")
    assert "source='mine'" in repr(settled_flows(Branch(own, Dense(chunks, SMALL)) >> ConvexCombination())[1])
    fusion = ConvexCombination((("bm25", 0.5), ("tf-idf", 0.5)))
    assert "source='tf-idf'" in repr(settled_flows(Branch(Choice(BM25(chunks), TFIDF(chunks))) >> fusion)[1])
    assert "source='tf-idf'" in repr(settled_flows(Choice(BM25(chunks), TFIDF(chunks)))[1])


def settled_flows(space: Operator[Any, Any]) -> list[Operator[Any, Any]]:
    return [flow for _, flow in settle(space)]


@pytest.mark.slow
def test_chunkings_and_parsers_are_compared_by_gold_as_spans(store: Store, tmp_path: Path) -> None:
    chunking, parser = (spaces(store)[name][0] for name in ("chunk size and splitter", "parser"))
    assert dict(tune(chunking, by_spans(), "nDCG@10").finalists[0].choices) == {"chunking": "tiny"}
    tuned_flow = tune(parser, by_spans(), "MRR")
    assert (tuned_flow.point, tuned_flow.excluded) == ({"parser": 0}, ())
    assert tuned_flow.score.mean == 1.0
    finer = group_of(store.corpus, "finer", Sentences(size=12))
    space = BM25(store.corpus.group()).vary("chunking", group=(store.corpus.group(), finer))
    assert tune(space, by_spans(), "MRR", path=tmp_path).rows == 2 * LIGHTHOUSES
    assert tune(space, by_spans(), "MRR", path=tmp_path).rows == 0  # though the first one has built a group
