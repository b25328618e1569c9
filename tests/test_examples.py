"""The published methods of `examples/`: their calls, searches and stop reasons, and their size."""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from spolia import Answer, Budget, Hit, Node, Query, Ranking, Run, ScriptedModel, Verdict, check, step
from spolia.core.operator import Operator
from spolia.orchestration import StopWhen
from spolia.types import Chain

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
ASKED = Query("Where has the employer of Olsen its headquarters?")
TEXTS = {"a": "Olsen worked for Nokia.", "b": "Nokia has its headquarters in Espoo.", "c": "Salt is dug in mines."}


def example(name: str) -> ModuleType:
    spec = spec_from_file_location(f"examples_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


ircot, corag, prefrag = (example(name) for name in ("ircot", "corag", "prefrag"))


def ranking_of(query: Query, source: str, *keys: str) -> Ranking:
    """The texts that share most words with the query."""
    words = set(query.text.lower().strip("?.").split())
    scores = {key: len(words & set(TEXTS[key].lower().strip(".").split())) for key in keys}
    hits = sorted((Hit(Node(key, TEXTS[key]), float(score)) for key, score in scores.items() if score),
                  key=lambda hit: -hit.score)  # fmt: skip
    return Ranking(query, tuple(hits[:1]), source)


@step
def search(query: Query) -> Ranking:
    return ranking_of(query, "search", *TEXTS)


@step
def never(chain: Chain) -> Verdict:
    return Verdict(stop=False)


@step
def local(query: Query) -> Ranking:
    return ranking_of(query, "local", "a", "c")


@step
def web(query: Query) -> Ranking:
    return ranking_of(query, "web", "b")


def run_flow(flow: Operator[Query, Answer], **limits: Any) -> tuple[Answer, int, list[str]]:
    """The answer, calls to the model, and the sources searched."""
    assert check(flow, takes=Query, gives=Answer).problems == ()
    with Run(**limits) as run, run.lane() as lane:
        answer = flow(ASKED)
    return answer, lane.usage.calls, [ranking.source for ranking in lane.retrievals]


@pytest.mark.parametrize("name", ["ircot", "corag", "prefrag"])
def test_a_published_method_has_at_most_40_lines(name: str) -> None:
    assert sum(bool(line.strip()) for line in (EXAMPLES / f"{name}.py").read_text().splitlines()) <= 40


# ------------------------------------------------------------------------------------------------------------- IRCoT


def thinker(sentences: int) -> ScriptedModel:
    """Thinks so many sentences, the last of which is the answer, and reads."""
    thought = [rf"<thoughts>(?:Olsen went on\. ?){{{n}}}</thoughts>" for n in range(sentences)]
    texts = ["Olsen went on. And more."] * (sentences - 1) + ["So the answer is: Espoo. Surely."]
    return ScriptedModel((*zip(thought, texts, strict=True), ("step by step", "Olsen went on."), ("", "Espoo [1].")))


@pytest.mark.parametrize("sentences", [1, 2, 4])
def test_ircot_takes_a_call_a_sentence_and_one_to_read(sentences: int) -> None:
    answer, calls, searches = run_flow(ircot.ircot(thinker(sentences), search))
    assert (calls, len(searches)) == (sentences + 1, sentences)
    assert answer.stop_reason == "answered"
    assert answer.text.startswith("Espoo")


def test_ircot_reads_what_every_sentence_found_once() -> None:
    llm = ScriptedModel(
        (("</passages>[\\s\\S]*<thoughts></thoughts>", "Olsen worked for Nokia."),
         ("step by step[\\s\\S]*worked for Nokia\\.</thoughts>", "So the answer is: Espoo."), ("", "Espoo [1]."))
    )  # fmt: skip
    answer, _, _ = run_flow(ircot.ircot(llm, search))
    assert answer.evidence is not None
    assert {node.id for node in answer.evidence.nodes} == {"a", "b"}


def test_ircot_says_that_the_cap_or_the_budget_ended_it() -> None:
    assert run_flow(ircot.ircot(thinker(9), search, max_sentences=3))[0].stop_reason == "cap"
    answer, calls, _ = run_flow(ircot.ircot(thinker(9), search), per_question=Budget(calls=3))
    assert (answer.stop_reason, calls) == ("budget", 3)


# ------------------------------------------------------------------------------------------------------------- CoRAG


def hopper(*questions: str) -> ScriptedModel:
    """Asks these sub-questions, one after the other."""
    replies = [(rf"simple question[\s\S]*?(?:Q: [\s\S]*){{{n}}}", question) for n, question in enumerate(questions)]
    return ScriptedModel((*reversed(replies), ("few words[\\s\\S]*<question>", "Nokia."), ("first question", "Espoo")))


@pytest.mark.parametrize("hops", [1, 2, 3, 6])
def test_corag_takes_as_many_pairs_as_the_judge_wants_and_one_answer(hops: int) -> None:
    flow = corag.corag(hopper(*"abcdef"), search, StopWhen("pairs", hops))
    answer, calls, searches = run_flow(flow)
    assert (calls, len(searches)) == (2 * hops + 1, hops + 1)
    assert (answer.text, answer.stop_reason) == ("Espoo", "sufficient")


def test_corag_stops_when_it_only_repeats_itself() -> None:
    answer, calls, _ = run_flow(corag.corag(hopper("a"), search, StopWhen("pairs", 3)))
    assert (answer.stop_reason, calls) == ("repeated", (1 + 1) + 4 + 1)


def test_corag_says_that_the_cap_or_the_budget_ended_it() -> None:
    flow = corag.corag(hopper(*"abcdef"), search, never, max_hops=2)
    assert run_flow(flow)[0].stop_reason == "cap"
    answer, calls, _ = run_flow(flow, per_question=Budget(calls=4))
    assert (answer.text, answer.stop_reason, calls <= 4) == ("Espoo", "budget", True)


# ----------------------------------------------------------------------------------------------------------- PrefRAG

LOOK = "<thought>?</thought><search>employer of Olsen</search>"
DEEPER = "<thought>?</thought><search>Nokia headquarters</search>"


def turn_with_answer(answer: str, evaluation: str) -> str:
    return f"<thought>!</thought><answer>{answer}</answer><evaluation>{evaluation}</evaluation>"


def preferring(*turns: tuple[str, str], helps: str) -> ScriptedModel:
    replies = ((f"Write a <thought>[\\s\\S]*{pattern}", reply) for pattern, reply in turns)
    return ScriptedModel((*replies, ("Do these passages", helps), ("in a few words", "Forced.")))


def test_prefrag_turns_to_the_other_source_only_where_the_preferred_one_does_not_help() -> None:
    turns = (("in Espoo", turn_with_answer("Espoo", "CORRECT")), ("for Nokia", DEEPER), ("", LOOK))
    answer, calls, sources = run_flow(prefrag.prefrag(preferring(*turns, helps="no"), local, web))
    assert (answer.text, answer.stop_reason) == ("Espoo", "answered")
    assert (calls, sources) == (3 + 1, ["local", "local", "web"])
    answer, calls, sources = run_flow(prefrag.prefrag(preferring(*turns, helps="yes"), local, web))
    assert (answer.text, answer.stop_reason) == ("Forced.", "cap")
    assert (calls, sources) == (4 + 3 + 1, ["local"] * 4)


def test_prefrag_stays_with_the_preferred_source_when_the_comparison_cannot_be_read() -> None:
    turns = (("for Nokia", DEEPER), ("", LOOK))
    _, _, sources = run_flow(prefrag.prefrag(preferring(*turns, helps="perhaps"), local, web))
    assert sources == ["local"] * 4


def test_prefrag_reflects_once_and_then_takes_the_answer() -> None:
    turns = (("in Espoo", turn_with_answer("Espoo", "PARTIAL")), ("", turn_with_answer("Salo", "WRONG")))
    answer, calls, sources = run_flow(prefrag.prefrag(preferring(*turns, helps="no"), local, web))
    assert (answer.text, answer.stop_reason) == ("Espoo", "answered")
    assert (calls, sources) == (2, ["local", "web"])


def test_prefrag_gives_a_rejected_answer_its_turn_back_and_one_more() -> None:
    turns = (("in Espoo", LOOK), ("", turn_with_answer("Salo", "WRONG")))
    answer, calls, sources = run_flow(prefrag.prefrag(preferring(*turns, helps="no"), local, web))
    assert (answer.text, answer.stop_reason) == ("Forced.", "cap")
    assert (calls, sources) == (6 + 5 + 1, ["local", "web", *["local", "web"] * 5])


def test_prefrag_forces_an_answer_when_nothing_can_be_read_or_the_budget_is_spent() -> None:
    answer, calls, _ = run_flow(prefrag.prefrag(preferring(("", "<thought>Hm.</thought>"), helps="no"), local, web))
    assert (answer.text, answer.stop_reason, calls) == ("Forced.", "error", 2 + 1)  # it is sent back once
    turns = (("for Nokia", DEEPER), ("", LOOK))
    answer, calls, _ = run_flow(
        prefrag.prefrag(preferring(*turns, helps="no"), local, web), per_question=Budget(calls=3)
    )
    assert (answer.text, answer.stop_reason) == ("Forced.", "budget")
    assert calls <= 3
