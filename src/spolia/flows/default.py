"""Which flow a corpus is searched with when nobody says."""

from __future__ import annotations

import re
from collections.abc import Sequence

from spolia.errors import MissingExtra, WeightsError
from spolia.flows.retrievers import bm25, group_of, hybrid
from spolia.models.protocols import Embedder
from spolia.operator import Operator
from spolia.stores.corpus import Corpus, NodeGroup
from spolia.stores.defined import built_in
from spolia.stores.lexical.analysis import in_words
from spolia.surrounding import access
from spolia.types import Query, Ranking

SAMPLE, BEGINNING = 50, 400
"""Nodes that are looked at, evenly spread over the group, and how many characters of each."""

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
    """Hybrid search where the embedder suits what is to be searched, else BM25; and why, in one line.

    Args:
        corpus: what to search, or one of its node groups.
        embedder: the one that the group was built with, if any.
        top_k: hits to return.
    """
    reason = suits(corpus, embedder)
    if reason or embedder is None:
        return bm25(corpus, top_k=top_k), f"bm25: {reason}"
    return hybrid(corpus, embedder, top_k=top_k), f"hybrid: {embedder.name} covers the language of the corpus"


def suits(corpus: Corpus | NodeGroup, embedder: Embedder | None) -> str:
    """Why the embedder does not suit a corpus; nothing when it does."""
    if embedder is None:
        return "there is no embedder"
    group = group_of(corpus)
    snapshot = group.snapshot()
    built = snapshot.manifest(group.name).embedder
    if not built and built_in(group.name) is not None:
        return f"group {group.name!r} has no vectors yet; the flow dense makes them at its first search"
    if built != embedder.name:
        return f"the corpus was indexed {f'with {built}, not {embedder.name}' if built else 'without an embedder'}"
    keys = snapshot.lexical(group.name).keys()
    nodes = snapshot.nodes(keys[:: max(1, len(keys) // SAMPLE)][:SAMPLE], access())
    try:
        return covers([node.text[:BEGINNING] for node in nodes], embedder)
    except (WeightsError, MissingExtra) as error:
        return f"{embedder.name} cannot be used ({error})"


def covers(texts: Sequence[str], embedder: Embedder) -> str:
    """Why an embedder does not know the language of some texts well enough; nothing when it does."""
    text = "\n".join(texts)
    known = embedder.covers(text)
    if known < KNOWN:
        return f"{embedder.name} knows {known:.0%} of the corpus's characters; {KNOWN:.0%} are asked for"
    if not in_words(text):  # a character there says as much as a syllable or a word
        return ""
    words = [_WORD.findall(text) for text in texts]
    count = sum(map(len, words))
    tokens = sum(embedder.tokens([" ".join(each) for each in words])) - sum(embedder.tokens([""])) * len(words)
    if tokens > TOKENS_PER_WORD * count:
        return (
            f"{embedder.name} breaks the corpus's words into {tokens / max(1, count):.1f} tokens; at most "
            f"{TOKENS_PER_WORD} are asked for"
        )
    return ""
