"""What a newcomer writes first and writes wrong: a typed error that says what to write."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import spolia
from spolia import BM25, Corpus, Definition, Field, Operator, Query
from spolia.core.public_names import MODULE_OF
from spolia.errors import (
    DataError,
    DocumentError,
    FilterError,
    FlowFileError,
    FolderError,
    GroupError,
    ModelRejected,
    QueryError,
    SpoliaError,
    StoreError,
    WiringError,
)
from spolia.indexing import AttachMetadata, Paragraphs, Sentences
from spolia.orchestration.sweep import sweep
from spolia.retrieval import InOrder
from spolia.stores import Embedding, NodeGroup
from spolia.testing import HashingEmbedder
from spolia.types import Chain
from tests.cases import check_each


class _Untyped:
    """Public names without their types, for arguments that a type checker would refuse."""

    def __getattr__(self, name: str) -> Any:
        if name not in MODULE_OF:
            raise AttributeError(name)
        return getattr(import_module(MODULE_OF[name]), name)


odd = _Untyped()
"""To write what a type checker would refuse."""
EMBEDDER = HashingEmbedder()
CHAIN: Any = Chain


@pytest.fixture
def corpus(fast_folder: Path) -> Corpus:
    new_corpus = Corpus(str(fast_folder / "notes.spolia"))
    text = "Spolia are stones. They were reused."
    spolia.add_texts(new_corpus, {"a.md": text}, metadata=lambda uri: {"author": "Ann", "year": 1999})
    return new_corpus


def lines(text: str) -> list[str]:
    return text.splitlines()


class Halfway:
    """What is written first of an embedder."""

    name, dimension, window = "halfway", 2, 100

    def fingerprint(self) -> str:
        return self.name

    def embed(self, texts: list[str], *, kind: str) -> list[list[float]]:
        return [[1.0, 0.0] for _ in texts]


def attaching(corpus: Corpus, *fields: str) -> NodeGroup:
    return corpus.group("dated", Definition(AttachMetadata(Sentences(), fields)))


SLIPS: dict[str, tuple[Callable[[Any], object], type[SpoliaError], str]] = {
    "a text for a query": (
        lambda corpus: odd.BM25(corpus.group())("Who?"),
        WiringError,
        r"^BM25\(top_k=10, source='bm25'\) takes Query, and was given the text 'Who\?'\. Write Query\('Who\?'\)\.$",
    ),
    "texts for queries": (lambda corpus: odd.BM25(corpus.group()).batch(["Who?"]), WiringError, "Write Query"),
    "a text for a chain": (
        lambda corpus: (odd.BM25(corpus.group()) >> odd.Neighbours(corpus))("Who?"),
        WiringError,
        r"Write Query\('Who\?'\)",
    ),
    "a text for rankings": (lambda _: odd.ReciprocalRankFusion(5)("Who?"), WiringError, "was given the text 'Who"),
    "nothing for a query": (
        lambda corpus: odd.BM25(corpus.group())(None),
        WiringError,
        r"takes Query, and was given None \(NoneType\)\. Write a Query",
    ),
    "a query for a ranking": (lambda _: odd.Extract()(Query("Who?")), WiringError, "takes Ranking, and .* Query"),
    "one query for a batch": (
        lambda corpus: odd.BM25(corpus.group()).batch(Query("Who?")),
        WiringError,
        r"batch takes a list, and was given Query.*Write batch\(\[…\]\)",
    ),
    "a text for a batch": (lambda corpus: odd.BM25(corpus.group()).batch("Who?"), WiringError, r"Write batch\("),
    "a corpus for a group": (
        odd.BM25,
        GroupError,
        r"^BM25 wants a node group, and was given Corpus\(.*Write corpus\.group\(NAME\); its groups are: chunk\.$",
    ),
    "a name for a group": (lambda _: odd.BM25("line"), GroupError, r"given 'line' \(str\)\. Write .*\.group\('line'\)"),
    "the same of vectors": (lambda corpus: odd.Dense(corpus, EMBEDDER), GroupError, "Dense wants a node group"),
    "the same of a mapping": (odd.Mapped, GroupError, "Mapped wants a node group"),
    "the same of a graph": (lambda corpus: odd.NodeGraph(corpus, (InOrder(),)), GroupError, "NodeGraph wants"),
    "the same of levels": (lambda corpus: odd.Descend(("summary", "chunk")), GroupError, "level of Descend wants"),
    "one level": (lambda corpus: odd.Descend(corpus.group()), WiringError, "Write two groups"),
    "the same of several": (odd.across, GroupError, "across wants a node group"),
    "a group for a corpus": (lambda corpus: odd.Neighbours(corpus.group()), StoreError, r"Write Neighbours\(corpus\)"),
    "a path for a corpus": (lambda _: odd.SentenceWindow("a.spolia"), StoreError, r"with Corpus\('a\.spolia'\)"),
    "the store before the folder": (
        lambda corpus: odd.sync(corpus, "notes"),
        StoreError,
        r"was given instead of documents\. Write sync\(FOLDER, corpus\)",
    ),
    "nothing to index": (lambda corpus: odd.sync(None, corpus), FolderError, r"None was given instead of documents"),
    "texts for a folder": (lambda corpus: odd.sync({"a": "b"}, corpus), FolderError, r"add_texts\(corpus, TEXTS\)"),
    "a text for conditions": (lambda _: odd.where("year=2020"), FilterError, r"Write where\(year=2020\)"),
    "a function for replies": (lambda _: odd.ScriptedModel(len), ModelRejected, r"not a tuple\. Write ScriptedModel"),
    "a path for the store": (lambda _: odd.sync("notes", "a.spolia"), StoreError, "is not a Corpus. Write sync"),
    "texts without names": (lambda corpus: odd.add_texts(corpus, ["A text."]), DocumentError, "are not texts by name"),
    "texts before the store": (lambda corpus: odd.add_texts({"a": "b"}, corpus), StoreError, r"Write add_texts\("),
    "a store in no place": (lambda _: odd.Corpus(None), StoreError, r"Write its folder: Corpus\('notes\.spolia'\)"),
    "a function for a transform": (
        lambda _: odd.Definition(lines),
        GroupError,
        r"^lines is a plain function, no transform\. Write @transform above its definition\.$",
    ),
    "a class for a transform": (lambda _: odd.Definition(Sentences), GroupError, r"Write Sentences\(\.\.\.\)"),
    "a name for a transform": (lambda _: odd.Definition("Sentences"), GroupError, "Write a splitter"),
    "a group for a parent": (
        lambda corpus: odd.Definition(Sentences(), corpus.group()),
        GroupError,
        r"The parent is NodeGroup.*Write the name of a group",
    ),
    "a name for an embedder": (
        lambda _: odd.Definition(Sentences(), embeddings="MiniLM"),
        GroupError,
        r"Write embeddings=\(Embedding\(MiniLM\(\)\),\)",
    ),
    "a function for an embedder": (
        lambda _: odd.Embedding(lines),
        WiringError,
        r"^Embedding wants an embedder, and was given .*Write MiniLM\(\); docs/how-to/models\.md shows one",
    ),
    "an embedder without a method": (
        lambda _: odd.Embedding(Halfway()),
        WiringError,
        r"Halfway.*\. It lacks covers\(text\), scoped, tokens\(texts\): docs/how-to/models\.md shows one",
    ),
    "a class for an embedder": (lambda _: odd.Embedding(HashingEmbedder), WiringError, r"Write Hashing\w+\(\.\.\.\)"),
    "a name for an embedder that asks": (
        lambda corpus: odd.Dense(corpus.group(), "MiniLM"),
        WiringError,
        r"^Dense wants an embedder, and was given 'MiniLM' \(str\)\. Write MiniLM\(\);",
    ),
    "a sparse embedder's place": (
        lambda corpus: odd.LearnedSparse(corpus.group(), EMBEDDER),
        WiringError,
        r"^LearnedSparse wants an embedder, .*It lacks embed_sparse\(texts, \*, kind\)",
    ),
    "a group that is misspelt": (
        lambda corpus: odd.BM25(corpus.group("chunks"))(Query("stones")),
        GroupError,
        r"^There is no node group 'chunks' in .*\. Did you mean chunk\? There are chunk, coarse, .*"
        r"corpus\.group\('chunks', Definition\(\.\.\.\)\).*spolia groups add chunks --from FILE",
    ),
    "a size in words": (
        lambda corpus: odd.BM25(corpus.group(), filter=odd.where(file_size="big"))(Query("stones")),
        FilterError,
        r"'file_size' holds int, and .*'big' \(str\)\. Write an int\.$",
    ),
    "no name for a field": (lambda _: odd.AttachMetadata(Sentences(), "author"), WiringError, "Write their names"),
    "a field of a file": (
        lambda _: odd.AttachMetadata(Sentences(), ("author", "file_name")),
        WiringError,
        "cannot attach file_name: .*Filter by them, or give them as metadata of another name",
    ),
    "a field that nothing has": (
        lambda corpus: odd.materialise([attaching(corpus, "author", "yaer")]),
        GroupError,
        "Group 'dated' names the metadata yaer, which no document has; they have: author, year. Write one of these",
    ),
    "the same in a search": (
        lambda corpus: odd.BM25(attaching(corpus, "autor"))(Query("stones")),
        GroupError,
        "names the metadata autor, which no document has",
    ),
    "names for groups": (
        lambda _: odd.materialise(["paras"]),
        GroupError,
        r"'paras' \(str\)\. Write .*group\('paras'\)",
    ),
    "one group for several": (
        lambda corpus: odd.materialise(corpus.group("page")),
        GroupError,
        r"Write \[corpus\.group",
    ),
    "the same while indexing": (
        lambda corpus: odd.add_texts(corpus, {"a": "b"}, groups=["page"]),
        GroupError,
        "groups= w",
    ),
    "one field for several": (
        lambda corpus: odd.add_texts(corpus, {"a": "b"}, fields=Field("year")),
        FilterError,
        r"Write \[Field\(",
    ),
    "a function for a reader": (
        lambda corpus: odd.add_texts(corpus, {"a.md": "b"}, readers=[lines]),
        GroupError,
        r"lines.* is not a reader\. Write which files it reads: readers=\{'\*\.foo': lines\}",
    ),
    "a name for a definition": (
        lambda corpus: corpus.group("zz", "Sentences"),
        GroupError,
        "Write a Definition, or None",
    ),
    "a language for an analyzer": (
        lambda _: odd.Definition(Sentences(), analyzer="german"),
        GroupError,
        r"^Definition has analyzer='german' \(str\)\. Write an Analyzer, or None\.$",
    ),
    "no such metric": (
        lambda _: odd.Embedding(EMBEDDER, metric="euclid"),
        WiringError,
        r"^Embedding has metric='euclid' \(str\)\. Write 'cosine', 'dot' or 'euclidean'\.$",
    ),
    "one edge for several": (
        lambda corpus: odd.NodeGraph(corpus.group(), InOrder()),
        WiringError,
        r"Write \(InOrder\(weight=1\.0\),\)\.$",
    ),
    "a group for a graph": (lambda corpus: odd.Hops(corpus.group()), WiringError, "Write a NodeGraph"),
    "a dict for patterns": (
        lambda _: odd.ByPattern({"*.md": Sentences()}),
        WiringError,
        r"Write tuple\(\{'\*\.md': Sentences\(.*\.items\(\)\)\.$",
    ),
    "one pattern": (lambda _: odd.ByPattern(("*.md", Sentences())), WiringError, r"Write \(\('\*\.md', Sentences\("),
    "a text for a size": (
        lambda _: odd.SlidingWindow(size="10"),
        WiringError,
        r"size='10' \(str\)\. Write a whole number",
    ),
    "a text for a number": (lambda _: odd.Cut(at_least="0.3"), WiringError, "Write a number, or None"),
    "a text for a count": (lambda corpus: odd.BM25(corpus.group(), "5"), WiringError, "is '5'. Write a whole number"),
    "a text for a filter": (
        lambda corpus: odd.BM25(corpus.group(), filter="year > 5"),
        WiringError,
        "Write a Filter, or",
    ),
    "a name for a model": (
        lambda _: odd.Reader("gpt-4"),
        WiringError,
        r"llm='gpt-4' \(str\)\. Write a LanguageModel\.$",
    ),
    "a list of arms": (
        lambda corpus: odd.Branch([BM25(corpus.group()), BM25(corpus.group())]),
        WiringError,
        r"arm 0 of Branch\. Write each of its items by itself: Branch\(a, b\)\.$",
    ),
    "one keyword": (
        lambda _: odd.KeywordFilter("tide"),
        WiringError,
        r"required='tide' \(str\)\. Write \('tide',\)\.$",
    ),
    "one excluded keyword": (lambda _: odd.KeywordFilter(excluded="tide"), WiringError, r"Write \('tide',\)\.$"),
    "one field of a hit": (lambda _: odd.AsDicts("rank"), WiringError, r"Write \('rank',\)\.$"),
    "one kind of entity": (lambda _: odd.RuleEntities("name"), WiringError, r"Write \('name',\)\.$"),
    "no question": (lambda _: odd.Query(None), QueryError, r"^The query is None \(NoneType\)\. Write a text"),
    "no embedder for links": (lambda _: odd.Similar(embedder=5), WiringError, "Similar wants an embedder"),
    "a number for a budget": (lambda _: odd.Run(budget=3), WiringError, r"^budget=3 is no Budget\. Write budget="),
    "a path for a cache": (lambda _: odd.Run(cache="r.db"), WiringError, r"Runs\(PATH\) as runs, Run\(cache=runs\.c"),
    "a resource that stands as a value": (
        lambda _: odd.step(lambda query, search: search(query)),
        WiringError,
        r"takes 2 values; an operator takes one, .* Write def <lambda>\(query, \*, search\)",
    ),
    "texts for questions with gold": (
        lambda corpus: odd.ask(BM25(corpus.group()), ["Who?"], "R@5"),
        DataError,
        r"^'Who\?' is not an Item\. Write Item\('q1', ",
    ),
    "ranges for a list of variants": (
        lambda _: list(sweep([], odd.ReciprocalRankFusion().vary(k=(1.0, 2.0)))),
        WiringError,
        r"is one step\. Write a list of variants: ",
    ),
    "a number for a cache": (lambda _: odd.Run(cache=5), WiringError, r"Runs\(PATH\) as runs, Run\(cache=runs\.c"),
    "a text for threads": (lambda _: odd.Run(threads="4"), WiringError, r"^threads='4' is not a whole number\. Write"),
    "a number for an answer": (lambda _: odd.Answer(5), WiringError, r"^Answer has text=5 \(int\)\. Write a text"),
    "a text for a verdict": (lambda _: odd.Verdict("no"), WiringError, r"^Verdict has stop='no' .*Write True or False"),
    "a text in a chain": (lambda _: CHAIN("Who?"), WiringError, r"^Chain has query=.* Write Query\("),
    "a role of no message": (lambda _: odd.Message("usr", "Hi"), WiringError, "Write 'system', 'user' or 'assistant'"),
    "a text for a score": (
        lambda _: odd.Ranking(odd.Query("a"), (odd.Hit(odd.Node("a", "b"), "high"),)),
        WiringError,
        r"^Hit has score='high' \(str\)\. Write a number",
    ),
    "a text for the third score": (
        lambda _: odd.Ranking(odd.Query("a"), tuple(odd.Hit(odd.Node("a", "b"), score) for score in (2.0, 1, None))),
        WiringError,
        r"^Hit has score=None \(NoneType\)\. Write a number",
    ),
    "a node for the second hit": (
        lambda _: odd.Ranking(odd.Query("a"), (odd.Hit(odd.Node("a", "b"), 1.0), odd.Node("c", "d"))),
        QueryError,
        r"^The ranking holds Node\(.*\(Node\)\. Write Hit\(node, score\)\.",
    ),
    "no hits": (
        lambda _: odd.Ranking(odd.Query("a")),
        WiringError,
        r"^Ranking needs hits\. Write Ranking\(query=…, hits=…\)\.",
    ),
    "no score": (lambda _: odd.Hit(odd.Node("a", "b")), WiringError, r"^Hit needs score\. Write Hit\(node=…, "),
    "no text of a node": (lambda _: odd.Node("a"), WiringError, r"^Node needs text\. Write Node\(id=…, text=…\)\."),
    "a wrong name in a document": (lambda _: odd.Document("a", "b", url="c"), WiringError, r"Write uri=\."),
    "too much of a span": (lambda _: odd.Span(1, 2, None, None, None, (), 3), WiringError, "takes 6 arguments without"),
    "a number for a model": (lambda _: odd.ChatModel(5, "http://h/v1"), WiringError, r"^ChatModel has model=5 \(int\)"),
    "a text for a limit": (lambda _: odd.Budget(calls="5"), WiringError, r"^Budget: calls is '5'\. Write 0 or more"),
    "a wrong name of a change": (lambda _: CHAIN(odd.Query("a")).but(pair=1), WiringError, r"Write pairs=\.$"),
    "a wrong name in a query": (lambda _: odd.Query("a", txt=1), WiringError, r"^Query takes no 'txt'\. Write text="),
    "a wrong name of a limit": (lambda _: odd.Budget(call=5), WiringError, r"Write calls=\.$"),
    "a wrong setting": (lambda _: odd.ChatModel("m", "http://h/v1", timeout=1), WiringError, "Write timeout_s="),
    "an embedder of a store": (lambda _: odd.Corpus("x", embedder=1), WiringError, "It takes: path, wait_s"),
    "a wrong name of sync": (lambda corpus: odd.sync("x", corpus, embeder=1), WiringError, r"Write embedder=\.$"),
    "a number for a flow file": (lambda _: odd.load(5), FlowFileError, r"^5 is not a flow file\. Write its path"),
    "a number for a flow": (lambda _: odd.check(5), WiringError, "^5 is not an operator, as what is checked"),
    "several principals": (lambda _: odd.Run(principal=["ann"]), WiringError, "others as groups: Run"),
    "a number for a principal": (lambda _: odd.Run(groups=[1]), WiringError, "Write a list of texts"),
}  # fmt: skip


@check_each("name", SLIPS)
def test_a_slip_is_an_error_that_says_what_to_write(name: str, corpus: Corpus) -> None:
    call, kind, message = SLIPS[name]
    groups = corpus.latest().groups()
    with pytest.raises(kind, match=message) as error:
        call(corpus)
    assert len(str(error.value)) < 500
    assert corpus.latest().groups() == groups, "nothing was built"


def test_every_operator_refuses_a_field_that_holds_something_else() -> None:
    """Also one that is written later, and one of a newcomer's own."""

    @dataclass(frozen=True)
    class Own(Operator[str, str]):
        times: int = 1
        names: tuple[str, ...] = ()

        def apply(self, value: str, /) -> str:
            return value * self.times

    assert Own(2, ("a",)).but(times=3)("x") == "xxx"
    wrongs: list[dict[str, Any]] = [{"times": "2"}, {"times": True}, {"names": "a"}, {"names": (1,)}]
    for wrong in wrongs:
        with pytest.raises(WiringError, match=r"^Own has (times|names)="):
            Own(**wrong)
    with pytest.raises(WiringError, match="Own has times='2'"):
        Own().but(times="2")


def test_what_can_only_mean_one_thing_works(corpus: Corpus, tmp_path: Path) -> None:
    assert Corpus(tmp_path / "a.spolia") == Corpus(str(tmp_path / "a.spolia"))
    definition = Definition(Paragraphs(), embeddings=(Embedding(EMBEDDER),))
    assert odd.Definition(Paragraphs(), embeddings=Embedding(EMBEDDER)) == definition
    assert odd.Definition(Paragraphs(), embeddings=(EMBEDDER,)) == definition
    assert odd.Similar(embedder=EMBEDDER) == odd.Similar(embedder=EMBEDDER.name)
    new_definition = Definition(odd.transform(lines))
    assert [node.text for node in BM25(corpus.group("line", new_definition))(Query("stones")).nodes]


def test_a_field_that_later_documents_will_have_is_declared(corpus: Corpus) -> None:
    spolia.add_texts(corpus, {"b.md": "Roads."}, metadata=lambda uri: {"author": "Bob"}, fields=[Field("isbn")])
    group = attaching(corpus, "author", "isbn")
    assert [node.context for node in BM25(group)(Query("Bob")).nodes] == ["author: Bob"]
