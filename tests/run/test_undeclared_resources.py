"""What a cached step reaches beside its fields: refused where code shows it, and never kept where only a run does."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spolia.core.combinators import Branch, Each, Identity, places, settle
from spolia.core.function import step
from spolia.core.operator import Operator
from spolia.core.run_context import access, charge, run_filter
from spolia.errors import WiringError
from spolia.journal import Cache, Runs
from spolia.models.prompting.stand_in_models import ScriptedModel
from spolia.retrieval.bm25 import BM25
from spolia.run import Run
from spolia.stores.corpus import Corpus, NodeGroup
from spolia.types import Failure, Message, Prompt, Query, Ranking, Usage, Value
from tests.stores.scenario import MANIFEST, put

Retriever = Operator[Query, Ranking]
QUERY = Query("treasure")
CORPUS = Corpus("nowhere.spolia")
RETRIEVER: Retriever = BM25(CORPUS.group())
SERVICE = SimpleNamespace(retriever=RETRIEVER)
BY_NAME: dict[str, Retriever] = {}


@pytest.fixture(scope="module", autouse=True)
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Corpus]:
    corpus = Corpus(str(tmp_path_factory.mktemp("store") / "notes.spolia")).create()
    with corpus.writer() as writer:
        writer.define("chunk", MANIFEST.but(embeddings=()))
        put(writer, "open.txt", "A treasure for all.\n")
        put(writer, "secret.txt", "A treasure of Ann's.\n", ("ann",))
    globals_before = {name: globals()[name] for name in ("CORPUS", "RETRIEVER", "SERVICE")}
    retriever = BM25(corpus.group())
    globals().update(CORPUS=corpus, RETRIEVER=retriever, SERVICE=SimpleNamespace(retriever=retriever))
    BY_NAME["it"] = retriever
    yield corpus
    globals().update(globals_before)


def texts(found: Any) -> list[str]:
    return sorted(node.text for ranking in ([found] if isinstance(found, Ranking) else found) for node in ranking.nodes)


# --------------------------------------------------------------------------------------------- refused


def of_global() -> Retriever:
    @step(cached=True)
    def found(query: Query) -> Ranking:
        return RETRIEVER(query)

    return found


def of_corpus() -> Retriever:
    @step(cached=True)
    def found(query: Query) -> Ranking:
        return BM25(CORPUS.group())(query)

    return found


def of_attribute() -> Retriever:
    @step(cached=True)
    def found(query: Query) -> Ranking:
        return SERVICE.retriever(query)  # type: ignore[no-any-return]

    return found


def of_container() -> Retriever:
    @step(cached=True)
    def found(query: Query) -> Ranking:
        return BY_NAME["it"](query)

    return found


def searched(query: Query) -> Ranking:
    return RETRIEVER(query)


@step
def uncached(query: Query) -> Ranking:
    return searched(query)


def of_helper() -> Retriever:
    @step(cached=True)
    def found(query: Query) -> Ranking:
        return uncached(query)

    return found


def of_closure() -> Retriever:
    retriever = RETRIEVER

    @step(cached=True)
    def found(query: Query) -> Ranking:
        return retriever(query)

    return found


def of_default() -> Retriever:
    @step(cached=True)
    def found(query: Query, *, retriever: Retriever = RETRIEVER) -> Ranking:
        return retriever(query)

    return found


def of_partial() -> Retriever:
    def search(query: Query, *, retriever: Retriever) -> Ranking:
        return retriever(query)

    return step(cached=True)(partial(search, retriever=RETRIEVER))


def of_bound_method() -> Retriever:
    return step(cached=True)(Held(RETRIEVER).search)


@dataclass(frozen=True)
class Held:
    retriever: Retriever

    def search(self, query: Query) -> Ranking:
        return self.retriever(query)


def of_class() -> Retriever:
    @dataclass(frozen=True)
    class Searching(Operator[Query, Ranking]):
        cached: ClassVar[bool] = True

        def apply(self, value: Query, /) -> Ranking:
            return self.found(value)

        def found(self, query: Query) -> Ranking:
            return RETRIEVER(query)

    return Searching()


def of_class_attribute() -> Retriever:
    @dataclass(frozen=True)
    class Searching(Operator[Query, Ranking]):
        cached: ClassVar[bool] = True
        retriever: ClassVar[Retriever] = RETRIEVER

        def apply(self, value: Query, /) -> Ranking:
            return self.retriever(value)

    return Searching()


@dataclass(frozen=True)
class Wrapped(Operator[Query, Ranking]):
    """A cached step around another one."""

    body: Retriever
    cached: ClassVar[bool] = True

    def apply(self, value: Query, /) -> Ranking:
        return self.body(value)


def of_inner_step() -> Retriever:
    return Wrapped(uncached)


VISIBLE: tuple[Callable[[], Retriever], ...] = (
    of_global, of_corpus, of_attribute, of_container, of_helper, of_closure, of_default, of_partial, of_bound_method,
    of_class, of_class_attribute, of_inner_step,
)  # fmt: skip


@pytest.mark.parametrize("form", VISIBLE)
def test_a_cached_step_whose_code_shows_a_store_beside_its_fields_is_refused(form: Callable[[], Retriever]) -> None:
    with pytest.raises(WiringError, match="cached") as caught:
        form()
    assert any(message in str(caught.value) for message in ("keyword argument", "def name", "function of its own"))


def test_the_error_of_a_cached_step_over_a_global_retriever_says_to_make_it_a_keyword_argument() -> None:
    with pytest.raises(WiringError, match=r"\(\*, retriever: \.\.\.\) and give it with \.but\(retriever=RETRIEVER\)"):
        of_global()

    @step(cached=True)
    def found(query: Query, *, retriever: Retriever) -> Ranking:
        return retriever(query)

    assert found.but(retriever=RETRIEVER)(QUERY).hits


def test_a_cached_step_that_reads_a_setting_of_a_store_or_asks_none_is_not_refused() -> None:
    @step(cached=True)
    def cut(ranking: Ranking) -> Ranking:
        return ranking.cut(SERVICE.retriever.top_k)

    assert cut(Ranking(QUERY, ())) == Ranking(QUERY, ())


def test_a_cached_step_that_names_a_model_beside_its_fields_is_refused() -> None:
    with pytest.raises(WiringError, match=r"reaches MODEL, ScriptedModel\("):

        @step(cached=True)
        def said(query: Query) -> str:
            return MODEL.generate(Prompt((Message("user", query.text),))).text


MODEL = ScriptedModel(("Yes.",))


class OwnModel:
    """A model that is compared by identity."""

    scoped = False

    def fingerprint(self) -> str:
        return "own"

    def generate(self, prompt: Prompt, **more: Any) -> Any:
        return MODEL.generate(prompt)


NAMELESS = OwnModel()


def test_a_cached_step_that_names_an_object_without_content_is_refused_in_words() -> None:
    with pytest.raises(WiringError, match=r"is cached and reaches NAMELESS, .*Make it a keyword argument"):

        @step(cached=True)
        def said(query: Query) -> str:
            return str(NAMELESS.generate(Prompt((Message("user", query.text),))).text)


class Plain:
    """A model without an address, as people write one first."""

    def generate(self, prompt: Prompt, **more: Any) -> Any:
        return MODEL.generate(prompt)


PLAIN = Plain()


def test_a_cached_step_that_names_a_model_without_an_address_is_refused_in_words() -> None:
    with pytest.raises(WiringError, match=r"is cached and reaches PLAIN, .*Make it a keyword argument"):

        @step(cached=True)
        def said(query: Query) -> str:
            return str(PLAIN.generate(Prompt((Message("user", query.text),))).text)


# ---------------------------------------------------------------------------------- seen only when it runs


@dataclass(frozen=True)
class Several(Operator[Query, tuple[Ranking, ...]]):
    """A cached step whose operators stand in a list."""

    arms: Sequence[Retriever]
    cached: ClassVar[bool] = True

    def apply(self, value: Query, /) -> tuple[Ranking, ...]:
        return tuple(arm(value) for arm in self.arms)


@dataclass(frozen=True)
class OfCorpus(Operator[Query, Ranking]):
    """Names the corpus, and makes its retriever itself."""

    corpus: Corpus
    cached: ClassVar[bool] = True

    def apply(self, value: Query, /) -> Ranking:
        return BM25(self.corpus.group())(value)


@dataclass(frozen=True)
class Batched(Operator[Query, Ranking]):
    """Looks its retriever up when it runs, for all rows at once."""

    cached: ClassVar[bool] = True

    def apply(self, value: Query, /) -> Ranking:
        return hidden()(value)

    def apply_batch(self, values: Sequence[Query], /) -> Sequence[Ranking | Failure]:
        return hidden().batch(values)


def hidden() -> Retriever:
    """What no reading of the code finds."""
    return getattr(sys.modules[__name__], "RETRI" + "EVER")  # type: ignore[no-any-return]


@step(cached=True)
def looked_up(query: Query) -> Ranking:
    return hidden()(query)


@step(cached=True)
def imported(query: Query) -> Ranking:
    return importlib.import_module(__name__).RETRIEVER(query)  # type: ignore[no-any-return]


@step(cached=True)
def in_a_run_of_its_own(query: Query) -> Ranking:
    with Run(principal="ann"):
        return hidden()(query)


@step(cached=True)
def in_a_thread_of_its_own(query: Query) -> Ranking:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(copy_context().run, hidden(), query).result()


@step(cached=True)
def of_who_asks(query: Query) -> Ranking:
    principals = " ".join(sorted(access())) + str(run_filter())
    return Ranking(query, (), principals)


@dataclass(frozen=True)
class Direct(Operator[Query, Ranking]):
    """Reads a store without any retriever, by an address that is in a text."""

    path: str
    cached: ClassVar[bool] = True

    def apply(self, value: Query, /) -> Ranking:
        snapshot = Corpus(self.path).snapshot()
        return Ranking(value, snapshot.hits(snapshot.search("chunk", value.text, 10, access(), None), access()))


@dataclass(frozen=True)
class ByArgument(Operator[Query, Ranking]):
    """A retriever is among the fields, and another one is asked."""

    corpus: NodeGroup
    cached: ClassVar[bool] = True

    def apply(self, value: Query, /) -> Ranking:
        return looked_up(value)


FORMS: dict[str, Callable[[], Operator[Query, Any]]] = {
    "a list": lambda: Several([RETRIEVER, RETRIEVER]),
    "a list of chains": lambda: Several([RETRIEVER >> Identity[Ranking]()]),
    "a field": lambda: Wrapped(RETRIEVER),
    "a chain in a field": lambda: Wrapped(Identity[Query]() >> RETRIEVER),
    "a step in a branch in a field": lambda: Several([Branch(RETRIEVER, RETRIEVER) >> First()]),
    "the corpus": lambda: OfCorpus(CORPUS),
    "looked up": lambda: looked_up,
    "imported": lambda: imported,
    "in a batch": Batched,
    "under a cached step": lambda: Wrapped(looked_up),
    "another field": lambda: ByArgument(Corpus("elsewhere.spolia").create().group()),
    "a run of its own": lambda: in_a_run_of_its_own,
    "a thread of its own": lambda: in_a_thread_of_its_own,
    "who asks": lambda: of_who_asks,
    "by its path": lambda: Direct(CORPUS.path),
    **{form.__name__: form for form in VISIBLE},
}


@dataclass(frozen=True)
class First(Operator[Sequence[Ranking], Ranking]):
    def apply(self, value: Sequence[Ranking], /) -> Ranking:
        return value[0]


@pytest.mark.slow
@settings(max_examples=40)
@given(
    form=st.sampled_from(sorted(FORMS)),
    events=st.lists(st.sampled_from(("ann", "bob", "", "struck off", "one more")), min_size=2, max_size=6),
    batched=st.booleans(),
)
def test_a_cached_result_is_the_uncached_one_whoever_asks_and_whenever(
    form: str, events: list[str], batched: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    try:
        op = FORMS[form]()
    except WiringError:
        return
    cache, reader = Cache(), "ann"
    show_secret_to(reader)
    for number, event in enumerate(events):
        if event == "one more":
            with CORPUS.writer() as writer:
                put(writer, "more.txt", f"A treasure, number {number} of {id(cache)}.\n")
        elif event == "struck off":
            reader = "bob" if reader == "ann" else "ann"
            show_secret_to(reader)
        else:
            answer = ask_as(op, event, cache, batched)
            assert answer == ask_as(op, event, None, batched)


def show_secret_to(reader: str) -> None:
    with CORPUS.writer() as writer:
        (secret,) = [document for document in writer.documents() if "Ann's" in document.text]
        if secret.readers != (reader,):
            writer.set_readers(secret, (reader,))


def ask_as(op: Operator[Query, Any], principal: str, cache: Cache | None, batched: bool) -> Any:
    with Run(principal=principal, cache=cache):
        return Each(op)((QUERY, QUERY))[0] if batched else op(QUERY)


def test_what_is_declared_is_kept_and_what_is_not_says_so(tmp_path: Path) -> None:
    with Runs(tmp_path / "runs.db") as runs:
        undeclared = (looked_up, Batched(), of_who_asks, in_a_thread_of_its_own)
        for op in (Several([RETRIEVER]), OfCorpus(CORPUS), Wrapped(RETRIEVER), *undeclared):
            for _ in range(2):
                with Run(principal="ann", cache=runs.cache, journal=runs.journal):
                    op.batch([QUERY])
        runs.journal.flush()
        spans = [span for run, *_ in runs.journal.runs() for span in runs.journal.spans(run) if not span.parent]
    cached_steps = {span.step.rpartition(":")[2] for span in spans if span.cached}
    assert cached_steps == {"Several", "OfCorpus", "Wrapped"}
    notes = {span.step.rpartition(":")[2]: "".join(span.notes) for span in spans}
    assert "not kept: looked_up depends on NodeGroup(" in notes["looked_up"]
    assert "not kept: Batched() depends on NodeGroup(" in notes["Batched"]
    assert "not kept: of_who_asks depends on who asks" in notes["of_who_asks"]
    assert "not kept: in_a_thread_of_its_own depends on NodeGroup(" in notes["in_a_thread_of_its_own"]


@dataclass(frozen=True)
class OwnEmbedder(Value):
    """Of the user's: tells the run nothing but what it costs."""

    scoped: ClassVar[bool] = False
    state: ClassVar[list[float]] = [1.0]

    def fingerprint(self) -> str:
        return str(self.state)

    def embed(self, texts: Sequence[str], *, kind: str) -> list[float]:
        charge(Usage(embedded=len(texts)))
        return self.state * len(texts)


OWN = OwnEmbedder()


@step(cached=True)
def embedded(query: Query) -> float:
    number: float = getattr(sys.modules[__name__], "O" + "WN").embed([query.text], kind="query")[0]
    return number


@dataclass(frozen=True)
class Embedded(Operator[Query, float]):
    embedder: OwnEmbedder
    cached: ClassVar[bool] = True

    def apply(self, value: Query, /) -> float:
        return self.embedder.embed([value.text], kind="query")[0]


def test_what_an_embedder_of_the_user_gives_is_kept_only_where_it_is_a_field() -> None:
    cache = Cache()
    for op, computed in ((embedded, 2), (Embedded(OWN), 1)):
        ran = 0
        for _ in range(2):
            with Run(cache=cache) as run:
                assert op(QUERY) == 1.0
            ran += sum(run.counts().values())
        assert ran == computed, op


def test_what_a_run_shares_hides_nothing_from_a_step_that_is_kept() -> None:
    cache = Cache()
    show_secret_to("ann")
    with Run(principal="ann", cache=cache, share=True):
        assert "A treasure of Ann's.\n" in texts(helper(QUERY))
        assert Around()(QUERY) == helper(QUERY)
        assert Around().batch([QUERY]) == [helper(QUERY)]
    with Run(cache=cache, share=True):
        assert "A treasure of Ann's.\n" not in texts(Around()(QUERY))


@step
def helper(query: Query) -> Ranking:
    return hidden()(query)


@dataclass(frozen=True)
class Around(Operator[Query, Ranking]):
    cached: ClassVar[bool] = True

    def apply(self, value: Query, /) -> Ranking:
        return helper(value)


# ----------------------------------------------------------------------------------- lists become tuples


@dataclass(frozen=True)
class Listing(Operator[Query, Query]):
    words: Sequence[Any] = ()
    arms: list[Retriever] = field(default_factory=list)

    def apply(self, value: Query, /) -> Query:
        return value


def test_a_list_in_a_field_is_a_tuple_deeply_and_everything_sees_what_is_in_it() -> None:
    words = ["a", ["b", ("c", ["d"])]]
    op = Listing(words, [RETRIEVER])
    words.append("later")
    assert op.words == ("a", ("b", ("c", ("d",))))
    assert op.resources == RETRIEVER.resources
    assert [place for place, _ in op.inner()] == ["arms.0"]
    assert op == Listing(("a", ("b", ("c", ("d",)))), [RETRIEVER])
    assert op.digest == op.but().digest
    assert hash(op) == hash(op.but(words=["a", ["b", ["c", ["d"]]]]))


def test_what_is_in_a_dict_in_a_field_is_seen_by_everything_and_does_not_change_with_the_dict_that_was_given() -> None:
    arms: dict[str, Any] = {"a": [RETRIEVER.vary(top_k=(1, 2))], "b": 1}
    op = Listing(({"arms": arms},))
    arms["b"] = 2
    assert op.words == ({"arms": {"a": (RETRIEVER.vary(top_k=(1, 2)),), "b": 1}},)
    assert op.resources == RETRIEVER.resources
    assert [place for place, _ in op.inner()] == ["words.0.arms.a.0"]
    assert op.digest == op.but().digest
    assert [flow.resources for _, flow in settle(op)] == [RETRIEVER.resources] * 2
    assert not [place for _, flow in settle(op) for place in places(flow)]


@dataclass(frozen=True, slots=True)
class Slotted(Operator[Query, Query]):
    arms: list[Retriever]

    def apply(self, value: Query, /) -> Query:
        return value


def test_a_list_in_a_slot_is_a_tuple_too() -> None:
    assert [place for place, _ in Slotted([RETRIEVER]).inner()] == ["arms.0"]


def test_a_list_in_an_argument_of_a_function_is_a_tuple() -> None:
    @step
    def cut(text: str, *, words: Sequence[str] = ()) -> str:
        return " ".join(word for word in text.split() if word not in words)

    assert cut.but(words=["the"]).arguments == (("words", ("the",)),)  # type: ignore[attr-defined]
    assert cut.but(words=["the"])("the tide") == "tide"
