"""Named flows from a query to a ranking or an answer."""

import re
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

from spolia import generation, models, orchestration, post_retrieval, retrieval
from spolia.core.combinators.branch import Branch
from spolia.core.operator import Operator
from spolia.core.replacement import replace_parts
from spolia.core.run_context import access
from spolia.errors import MissingExtra, WeightsError, WiringError
from spolia.filters import Condition
from spolia.flows.catalogue import MODULES, find_flow
from spolia.models.protocols import Embedder, LanguageModel, Scorer
from spolia.models.trained_weights import RANKER
from spolia.retrieval.bm25 import BM25
from spolia.retrieval.group_search import GroupSearch
from spolia.stores.corpus import Corpus, NodeGroup, refuse_no_corpus
from spolia.stores.definition import MAIN
from spolia.stores.lexical.analysis import is_mostly_words
from spolia.stores.manifest import built_in
from spolia.types import Answer, Query, Ranking

CANDIDATES = 100
"""Hits of each retriever that are fused. Means and deviations of the scores settle with their number: nDCG@10 in
percent on hotpotqa, squad2_dev and musique is 83.2, 90.6, 63.1 with 20 hits, 83.8, 90.9, 63.1 with 50, 83.9, 91.3, 63.9
with 100 and 84.1, 91.1, 63.7 with 200."""


def bm25(
    corpus: Corpus | NodeGroup, embedder: Embedder | None = None, llm: LanguageModel | None = None, top_k: int = 10
) -> Operator[Query, Ranking]:
    """Search by words."""
    return BM25(group_of(corpus), top_k)


def dense(
    corpus: Corpus | NodeGroup, embedder: Embedder | None = None, llm: LanguageModel | None = None, top_k: int = 10
) -> Operator[Query, Ranking]:
    """Search by meaning; WiringError without an embedder."""
    return retrieval.Dense(group_of(corpus), _refuse_no_embedder(embedder, "dense"), top_k)


def hybrid(
    corpus: Corpus | NodeGroup, embedder: Embedder | None = None, llm: LanguageModel | None = None, top_k: int = 10
) -> Operator[Query, Ranking]:
    """Search by words and by meaning, and add up how far above the mean of its list each score stands. WiringError
    without an embedder.

    Chosen on hotpotqa, squad2_dev and musique, while the committed table reports other sets, out of rank fusion (k of
    10 and 60) and four normalisations with 0.3, 0.5 and 0.7 for the words. nDCG@10 in percent on these three:

        words alone 78.4, 88.9, 54.4 · meaning alone 78.7, 79.1, 60.2 · rank fusion (k = 60) 81.7, 87.8, 61.2
        min-max 83.6, 90.8, 63.4 · theoretical min-max (0.3) 83.8, 91.1, 63.1 · z-score (0.5) 83.9, 91.3, 63.9
    """
    group, depth = group_of(corpus), max(CANDIDATES, top_k)
    arms = Branch(BM25(group, depth), retrieval.Dense(group, _refuse_no_embedder(embedder, "hybrid"), depth))
    return arms >> orchestration.ConvexCombination((("bm25", 0.5), ("dense", 0.5)), "z-score", top_k)


SHIPPED = ("multi-hop", "multi-hop-words")
"""Weights of rankers that come with Spolia: with the vectors of all-MiniLM-L6-v2, and without vectors. Trained
on 180 public questions each of MuSiQue, HotpotQA and 2WikiMultihopQA."""


def multi_hop(
    corpus: Corpus | NodeGroup,
    embedder: Embedder | None = None,
    llm: LanguageModel | None = None,
    top_k: int = 10,
    ranker: str = "",
) -> Operator[Query, Ranking]:
    """Rank passages that answer a question together, by learned weights over titles and names that link them.

    Args:
        ranker: a folder that `spolia train ranker` wrote; by default the shipped weights that fit the embedder.
    """
    group = group_of(corpus)
    is_suited = embedder is not None and not (group.corpus.exists() and find_mismatch(group, embedder))
    embedder_name = embedder.name if embedder is not None and is_suited else ""
    embedder_names = {name: _required_embedder(name) for name in ((ranker,) if ranker else SHIPPED)}
    # Else the last one: of the shipped ones it needs no embedder.
    name = next((name for name, needed in embedder_names.items() if needed == embedder_name), [*embedder_names][-1])
    return retrieval.LearnedRanker(
        group,
        models.TrainedWeights(name),
        embedder if embedder_names[name] else None,
        "entity" if group.name == MAIN else "",
        top_k,
    )


def _required_embedder(ranker: str) -> str:
    """Return the name of the embedder that a ranker needs; empty for none."""
    groups = models.TrainedWeights(ranker).plain(RANKER).get("groups")
    return str(groups.get("embedder", "")) if isinstance(groups, dict) else ""


def group_of(corpus: Corpus | NodeGroup) -> NodeGroup:
    """Return the group itself, or the main group of a corpus."""
    if isinstance(corpus, NodeGroup):
        return corpus
    refuse_no_corpus(corpus, "corpus or corpus.group(NAME)")
    return corpus.group()


def _refuse_no_embedder(embedder: Embedder | None, flow: str) -> Embedder:
    if embedder is None:
        raise WiringError(f"The flow {flow!r} needs an embedder (in Python {flow}(corpus, MiniLM())); bm25 needs none.")
    return embedder


SAMPLE, BEGINNING = 50, 400  # nodes that are looked at, evenly spread over the group, and how many characters of each

KNOWN = 0.95
"""Share of the characters that the embedder must know. all-MiniLM-L6-v2 knows 0.995 and more of English, Spanish and
Arabic, 0.82 of Korean, 0.45 to 0.49 of Chinese, 0.13 of Thai."""

TOKENS_PER_WORD = 1.5
"""At most, on average: a tokenizer that breaks words up belongs to a model that was hardly taught the language
(fertility: Rust et al., "How good is your tokenizer?", ACL 2021). With all-MiniLM-L6-v2 eleven English sets have 1.06
to 1.21, Python code up to 1.27, Spanish 1.81, Arabic 4.5. It knows the letters of both, and yet hybrid is below BM25
there: nDCG@10 94.5 and 96.4 on xquad_es, 81.4 and 93.4 on xquad_ar, 69.5 and 82.4 on arcd."""

_WORD = re.compile(r"[^\W\d_]+")


def choose(
    corpus: Corpus | NodeGroup, embedder: Embedder | None = None, top_k: int = 10
) -> tuple[Operator[Query, Ranking], str]:
    """Choose hybrid search if the group's own embedder suits the corpus, else BM25; also return why, in one line."""
    reason = find_mismatch(corpus, embedder)
    if reason or embedder is None:
        return bm25(corpus, top_k=top_k), f"bm25: {reason}"
    return hybrid(corpus, embedder, top_k=top_k), f"hybrid: {embedder.name} knows the words of the corpus"


def find_mismatch(corpus: Corpus | NodeGroup, embedder: Embedder | None) -> str:
    """Return why the embedder does not suit a corpus; empty if it does."""
    if embedder is None:
        return "there is no embedder"
    group = group_of(corpus)
    snapshot = group.snapshot()
    built = snapshot.manifest(group.name).embedder
    if not built and built_in(group.name) is not None:
        return f"group {group.name!r} has no vectors yet; the flow dense makes them at its first search"
    if built != embedder.name:
        return f"the corpus was indexed {f'with {built}, not {embedder.name}' if built else 'without an embedder'}"
    readable = snapshot.allowed(group.name, access())
    keys = readable.keys[readable.positions()].tolist()
    nodes = snapshot.nodes(keys[:: max(1, len(keys) // SAMPLE)][:SAMPLE], access())
    try:
        return find_language_gap([node.text[:BEGINNING] for node in nodes], embedder)
    except (WeightsError, MissingExtra) as error:
        return f"{embedder.name} cannot be used ({error})"


def find_language_gap(texts: Sequence[str], embedder: Embedder) -> str:
    """Return why an embedder does not know the language of some texts well enough; empty if it does."""
    if not getattr(embedder, "counts_tokens", True):  # an estimate says nothing of the language
        return ""
    text = "\n".join(texts)
    known_share = embedder.covers(text)
    if known_share < KNOWN:
        return f"{embedder.name} knows {known_share:.0%} of the corpus's characters; {KNOWN:.0%} are asked for"
    if not is_mostly_words(text):  # a character there says as much as a syllable or a word
        return ""
    words = [_WORD.findall(text) for text in texts]
    count = sum(map(len, words))
    # Without the marks that a tokenizer puts around every text.
    overhead = sum(embedder.tokens([""])) * len(words)
    tokens = sum(embedder.tokens([" ".join(text_words) for text_words in words])) - overhead
    if tokens > TOKENS_PER_WORD * count:
        return (
            f"{embedder.name} breaks the corpus's words into {tokens / max(1, count):.1f} tokens; at most "
            f"{TOKENS_PER_WORD} are asked for"
        )
    return ""


class Builder(Protocol):
    def __call__(
        self,
        corpus: Corpus | NodeGroup,
        embedder: Embedder | None = None,
        llm: LanguageModel | None = None,
        top_k: int = ...,
    ) -> Operator[Query, Any]: ...


def default(
    corpus: Corpus | NodeGroup, embedder: Embedder | None = None, llm: LanguageModel | None = None, top_k: int = 10
) -> Operator[Query, Ranking]:
    """Build `hybrid` where it is known to help, else `bm25`; `choose` also says why."""
    return choose(corpus, embedder, top_k)[0]


def naive(
    corpus: Corpus | NodeGroup,
    embedder: Embedder | None = None,
    llm: LanguageModel | None = None,
    top_k: int = 5,
    retriever: str = "default",
    scorer: Scorer | None = None,
) -> Operator[Query, Answer]:
    """Retrieve, then answer: by the language model, or by quoting without one.

    Args:
        embedder: for the retrieval, and to choose what to quote where that is hybrid.
        llm: writes the answer; None quotes sentences.
        retriever: the flow that finds the passages.
        scorer: reranks them.
    """
    retrieval_flow = build_retrieval(retriever, corpus, embedder, top_k, scorer)
    if llm is not None:
        return retrieval_flow >> generation.Reader(llm, max_passages=top_k)
    group = group_of(corpus)
    judge = None if find_mismatch(group, embedder) else embedder
    analyzer = group.corpus.snapshot().manifest(group.name).analyzer
    return retrieval_flow >> generation.Extract(judge, passages=top_k, analyzer=analyzer)


RETRIEVERS = ("bm25", "dense", "hybrid", "multi-hop", "default")
RERANKED = 50
"""Hits that a reranker judges."""


def build_retrieval(
    retriever: str,
    corpus: Corpus | NodeGroup,
    embedder: Embedder | None = None,
    top_k: int = 10,
    scorer: Scorer | None = None,
    ranker: str = "",
) -> Operator[Query, Ranking]:
    """Build a built-in flow that retrieves passages, and reranks them if there is a reranker.

    Args:
        retriever: the name of that flow.
        scorer: judges the best 50 hits, or `top_k` where that is more.
        ranker: the folder of a trained ranker, for the flow `multi-hop`.

    >>> from spolia.models import RerankModel
    >>> build_retrieval("bm25", Corpus("notes.spolia"), scorer=RerankModel("bge", "http://127.0.0.1:8080")).steps[1].judged
    50
    """
    find: Builder = partial(multi_hop, ranker=ranker) if retriever == "multi-hop" else BUILT_IN[retriever]
    if scorer is None:
        return find(corpus, embedder, None, top_k)
    depth = max(RERANKED, top_k)
    return find(corpus, embedder, None, depth) >> post_retrieval.CrossEncoder(scorer, top_k, depth)


F = TypeVar("F", bound=Operator[Any, Any])


def add_condition(flow: F, condition: Condition) -> F:
    """Restrict every search of a flow that has no filter to nodes that fulfil a condition.

    >>> from spolia.filters import where
    >>> add_condition(BM25(Corpus("notes.spolia").group()), where(source="web")).filter
    AnyOf(field='source', values=('web',))
    """

    def change(value: Any) -> Any:
        return value.but(filter=condition) if isinstance(value, GroupSearch) and value.filter is None else value

    changed_flow: F = replace_parts(flow, change)
    return changed_flow


def from_paper(
    name: str,
    corpus: Corpus | NodeGroup,
    embedder: Embedder | None = None,
    llm: LanguageModel | None = None,
    top_k: int = 0,
    retriever: str = "default",
    **further_parts: Any,
) -> Operator[Query, Answer]:
    """Build a published flow (`spolia.flows`) over the passages of another flow.

    Args:
        top_k: passages of each search; 0 for as many as the method takes.
        retriever: the name of that flow.
        further_parts: its further parts: `web`, a second retriever; `scorer`; `search` in place of the first.

    >>> from spolia.models import ScriptedModel
    >>> from_paper("ircot", Corpus("notes.spolia"), llm=ScriptedModel(("Nokia.",))).calls()
    21
    """
    flow = find_flow(name)
    group = group_of(corpus)
    parts = {"group": group, "embedder": embedder, "llm": llm, **further_parts}
    if "search" in flow.needs and parts.get("search") is None:
        parts["search"] = BUILT_IN[retriever](group, embedder, None, top_k or flow.top_k)
        if "embedder" in flow.may_have and find_mismatch(
            group, embedder
        ):  # it does without one that does not suit the corpus
            parts["embedder"] = None
    return flow.build_flow(parts)


PLAIN: Mapping[str, Builder] = {
    "bm25": bm25,
    "dense": dense,
    "hybrid": hybrid,
    "multi-hop": multi_hop,
    "default": default,
    "naive": naive,
}
BUILT_IN: Mapping[str, Builder] = {
    **PLAIN,
    **{name: partial(from_paper, name) for name in MODULES if name != "naive"},
}


def find_builder(name: str) -> Builder:
    """Return the function that builds the flow of this name."""
    if name not in BUILT_IN:
        raise WiringError(f"There is no flow {name!r}. {suggest_names(name)}")
    return BUILT_IN[name]


def suggest_names(name: str, files: Iterable[str] = ()) -> str:
    """Suggest what to write for a name or file that does not exist: the nearest ones, and where all are listed.

    >>> suggest_names("bm52")
    'Did you mean bm25? Else write dense, hybrid, multi-hop, default, naive, one that `spolia flows` lists, or a file.'
    """
    names = {flow: flow for flow in BUILT_IN} | {Path(file).stem.lower(): file for file in files}
    near = [names[match] for match in get_close_matches(Path(name).stem.lower(), names, 3)]
    nearest = f"Did you mean {' or '.join(near)}? Else write" if near else "Write"
    alternatives = ", ".join(plain for plain in PLAIN if plain not in near)
    return f"{nearest} {alternatives}, one that `spolia flows` lists, or a file."
