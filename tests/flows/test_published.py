"""The published flows: calls, searches and stop reasons as the papers have them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from spolia import Answer, Budget, Hit, Node, Query, Ranking, Run, ScriptedModel, check, step
from spolia.core.operator import Operator
from spolia.core.run_context import reserve
from spolia.errors import BudgetSpent, ModelRejected
from spolia.flows.catalogue import find_flow
from spolia.testing import HashingEmbedder
from spolia.types import Prompt, Token, Usage, Value
from tests.cases import check_each

ASKED = Query("Where has the employer of Olsen its headquarters?")
TEXTS = ("Olsen worked for Nokia.", "Nokia has its headquarters in Espoo.", "Salt is dug in mines.")
EVERY = frozenset(("chat", "stream", "logprobs", "scores", "next_tokens"))


@dataclass(frozen=True)
class Model(ScriptedModel):
    """A scripted model that also scores what it is given."""

    capabilities: frozenset[str] = EVERY

    def continuation(self, prompt: Prompt, text: str) -> tuple[Token, ...]:
        with reserve(Usage(calls=1)) as reservation:
            reservation.settle(Usage(calls=1))
        return (Token(text, -0.5),)

    def next_tokens(self, prompt: Prompt, *, top: int = 5) -> tuple[Token, ...]:
        with reserve(Usage(calls=1)) as reservation:
            reservation.settle(Usage(calls=1))
        return (Token(self._reply(prompt), -0.1),)


@dataclass(frozen=True)
class Scores(Value):
    """A scorer of fixed scores: of a text that holds a word, else `otherwise`."""

    rows: tuple[tuple[str, float], ...] = ()
    otherwise: float = 0.0
    name: str = "fixed"
    waits = False
    scoped = False

    def fingerprint(self) -> str:
        return self.digest.hex()

    def scores(self, query: str, texts: Sequence[str]) -> tuple[float, ...]:
        return tuple(next((score for word, score in self.rows if word in text), self.otherwise) for text in texts)


def ranking_of(query: Query, source: str, texts: Sequence[str]) -> Ranking:
    hits = tuple(Hit(Node(f"{source}{index}", text), 1.0 / (index + 1)) for index, text in enumerate(texts))
    return Ranking(query, hits, source)


@step
def local(query: Query) -> Ranking:
    return ranking_of(query, "local", TEXTS)


@step
def web(query: Query) -> Ranking:
    return ranking_of(query, "web", TEXTS[:2])


@step
def nowhere(query: Query) -> Ranking:
    return Ranking(query, (), "local")


def run_flow(
    name: str, llm: Any, *, search: Any = local, run_options: Any = None, **parts: Any
) -> tuple[Answer, int, list[str]]:
    """The answer, calls to the model, and the sources that were searched."""
    flow = build_flow(name, llm, search=search, **parts)
    assert check(flow, takes=Query, gives=Answer).problems == ()
    with Run(**(run_options or {})) as run, run.lane() as lane:
        answer = flow(ASKED)
    bound = flow.calls()
    assert bound is None or lane.usage.calls <= bound
    return answer, lane.usage.calls, [ranking.source for ranking in lane.retrievals]


def build_flow(name: str, llm: Any, **parts: Any) -> Operator[Query, Answer]:
    return find_flow(name).build_flow({"llm": llm, "search": local, "web": web, "scorer": Scores(), **parts})


READS = Model(("Espoo [1].",))


@step
def costly(query: Query) -> Ranking:
    with reserve(Usage(calls=3)):
        return ranking_of(query, "web", TEXTS[:2])


def test_a_budget_that_ends_in_one_of_two_sources_drops_it_and_one_that_ends_in_both_is_raised() -> None:
    flow = build_flow("naive-both", READS, web=costly)
    with Run(per_question=Budget(calls=2)) as run, run.lane() as lane:
        answer = flow(ASKED)
    assert (answer.text, [ranking.source for ranking in lane.retrievals]) == ("Espoo [1].", ["local"])
    assert any("BudgetSpent" in reason and is_degraded for _, reason, is_degraded in lane.reasons)
    with Run(per_question=Budget(calls=2)), pytest.raises(BudgetSpent):
        build_flow("naive-both", READS, search=costly, web=costly)(ASKED)


@dataclass(frozen=True)
class Endless(Model):
    """Foretells one word again and again, each time for a call."""

    def next_tokens(self, prompt: Prompt, *, top: int = 5) -> tuple[Token, ...]:
        with reserve(Usage(calls=1)) as reservation:
            reservation.settle(Usage(calls=1))
        return (Token(" no", 0.0),)


@pytest.mark.parametrize(("name", "calls"), [("replug-token", 7), ("naive", 0)])
def test_a_flow_without_a_loop_gives_no_part_of_an_answer_where_the_budget_ends(name: str, calls: int) -> None:
    with Run(per_question=Budget(calls=calls)), pytest.raises(BudgetSpent):
        build_flow(name, Endless(("Espoo [1].",)))(ASKED)


@check_each(
    ("name", "calls", "searches"),
    [
        ("closed-book", 1, []), ("naive", 1, ["local"]), ("naive-web", 1, ["web"]), ("naive-both", 1, ["local", "web"]),
        ("rrr", 2, ["local"]), ("hyde", 2, ["local"]), ("step-back", 2, ["local"] * 2), ("advanced", 3, ["local"]),
        ("replug", 3, ["local"]), ("ra-dit", 3, ["local"]), ("iter-retgen", 3, ["local"] * 3),
        ("dr-rag", 1, ["local"] * 4),
    ],
)  # fmt: skip
def test_a_flow_takes_as_many_calls_and_searches_as_published(name: str, calls: int, searches: list[str]) -> None:
    rows = (("best first", "[1] > [2] > [3]"), ("", "Espoo [1]."))
    answer, count, sources = run_flow(name, Model(rows), scorer=Scores(otherwise=1.0))
    assert (count, sources) == (calls, searches)
    assert answer.stop_reason in find_flow(name).stop_reasons


# ------------------------------------------------------------------------------------------------------------- IRCoT


def thinker(sentences: int) -> Model:
    """Thinks so many sentences, the last of which is the answer, and reads."""
    thought = [rf"<thoughts>(?:Olsen went on\. ?){{{n}}}</thoughts>" for n in range(sentences)]
    texts = ["Olsen went on. And more."] * (sentences - 1) + ["So the answer is: Espoo. Surely."]
    return Model((*zip(thought, texts, strict=True), ("step by step", "Olsen went on."), ("", "Espoo [1].")))


@pytest.mark.parametrize("sentences", [1, 2, 4])
def test_ircot_takes_a_call_a_sentence_and_one_to_read(sentences: int) -> None:
    answer, calls, searches = run_flow("ircot", thinker(sentences))
    assert (calls, len(searches), answer.stop_reason) == (sentences + 1, sentences, "answered")


def test_ircot_ends_at_ten_sentences_an_empty_one_or_with_the_budget() -> None:
    assert run_flow("ircot", thinker(12))[::2][0].stop_reason == "cap"
    assert run_flow("ircot", thinker(12))[1] == 10 + 1
    assert len(run_flow("ircot", thinker(12))[2]) == 10
    assert run_flow("ircot", Model((("step by step", "none"), ("", "Espoo."))))[0].stop_reason == "empty"
    answer, calls, _ = run_flow("ircot", thinker(9), run_options={"per_question": Budget(calls=3)})
    assert (answer.stop_reason, calls) == ("budget", 3)


# ------------------------------------------------------------------------------------------------------------- CoRAG


def hopper(*questions: str, enough: str = "no") -> Model:
    """Asks these sub-questions one after the other, each sample in other words."""
    steps = [
        (rf"chain of simpler[\s\S]*?<chain>(?:(?!Q: )[\s\S])*(?:Q: (?:(?!Q: )[\s\S])*){{{n}}}</chain>",
         *(question if draw == 0 else f"{question} {draw}" for draw in range(16)))
        for n, question in enumerate(questions)
    ]  # fmt: skip
    return Model((("Is what the chain says", enough), *steps, ("a few words. If", "Nokia."), ("", "Espoo [1]")))


def test_corag_takes_two_calls_a_step_and_one_to_answer() -> None:
    answer, calls, searches = run_flow("corag", hopper(*"abcdef"))
    assert (calls, len(searches), answer.stop_reason) == (12 + 1, 6 + 1, "cap")
    assert answer.citations[0].node == "local0"


def test_corag_of_a_model_that_repeats_itself_is_one_pair_long() -> None:
    answer, calls, searches = run_flow("corag", Model((("chain of simpler", "a"), ("", "Nokia"))))
    assert (calls, len(searches), answer.stop_reason) == ((1 + 1) + 4 + 1, 1 + 1, "repeated")


def test_corag_bounds_steps_and_pairs_apart() -> None:
    assert run_flow("corag", hopper(*"abcdef"), steps=3)[1:] == (6 + 1, ["local"] * 4)
    answer, calls, _ = run_flow("corag", hopper(*"abcdef"), pairs=2)
    assert (calls, answer.stop_reason) == (4 + 1, "pairs")
    answer, calls, searches = run_flow("corag", hopper(*"abcdef"), pairs=0)
    assert (calls, searches) == (1, ["local"])  # plain retrieval and reading


def test_corag_best_of_four_takes_as_many_calls_as_published() -> None:
    _, calls, searches = run_flow("corag-best-of-n", hopper(*"abcdef"))
    assert (calls, len(searches)) == (24 + 24 + 4 + 1, 24 + 1)


def test_corag_tree_takes_as_many_calls_as_published_with_each_draw_a_call() -> None:
    _, calls, searches = run_flow("corag-tree", hopper(*"abcdef"))
    assert (calls, len(searches)) == (6 * 6 + 72 + 96 + 48 + 1, 96 + 1)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["corag-classifier-best-of-n", "corag-classifier-tree"])
def test_corag_of_several_chains_ends_where_the_classifier_finds_that_one_suffices(name: str) -> None:
    answer, _, searches = run_flow(name, hopper(*"abcdef"), scorer=Scores((("Q: a", 0.9),), otherwise=0.1))
    assert answer.stop_reason == "sufficient"
    assert len(searches) == 4 * 1 + 1 if name.endswith("n") else len(searches) <= 4 + 1
    answer, _, _ = run_flow(name, hopper(*"abcdef"), scorer=Scores(otherwise=0.1))
    assert answer.stop_reason == "cap"


@pytest.mark.parametrize("pairs", [1, 3, 6])
def test_corag_with_a_classifier_stops_at_the_first_chain_that_suffices(pairs: int) -> None:
    scorer = Scores(((f"Q: {'abcdef'[pairs - 1]}", 0.9),), otherwise=0.1)
    answer, calls, searches = run_flow("corag-classifier", hopper(*"abcdef"), scorer=scorer)
    assert (calls, len(searches), answer.stop_reason) == (2 * pairs + 1, pairs + 1, "sufficient")


def test_corag_with_a_judge_asks_it_after_each_pair() -> None:
    answer, calls, _ = run_flow("corag-oracle", hopper(*"abcdef", enough="yes"))
    assert (calls, answer.stop_reason) == (2 + 1 + 1, "sufficient")
    answer, calls, _ = run_flow("corag-oracle", hopper(*"abcdef"))
    assert (calls, answer.stop_reason) == (12 + 6 + 1, "cap")


# ----------------------------------------------------------------------------------------------------------- PrefRAG

LOOK = "<thought>?</thought><source>web</source><search>employer of Olsen</search>"


def turn_with_answer(answer: str, evaluation: str) -> str:
    return f"<thought>!</thought><answer>{answer}</answer><evaluation>{evaluation}</evaluation>"


def preferring(*turns: tuple[str, str], helps: str = "no") -> Model:
    replies = ((f"one search at a time[\\s\\S]*{pattern}", reply) for pattern, reply in turns)
    return Model((*replies, ("Compare the new", helps), ("best\\s+answer that they allow", "Forced.")))


def test_prefrag_that_never_answers_takes_four_turns_three_comparisons_and_a_forced_answer() -> None:
    answer, calls, sources = run_flow("prefrag", preferring(("", LOOK)))
    assert (calls, sources) == (4 + 3 + 1, ["local", *["local", "web"] * 3])
    assert (answer.text, answer.stop_reason) == ("Forced.", "forced")


def test_prefrag_at_worst_takes_six_turns_five_comparisons_and_a_forced_answer() -> None:
    turns = (("<log", LOOK), ("", turn_with_answer("Salo", "INCORRECT")))
    answer, calls, sources = run_flow("prefrag", preferring(*turns))
    assert calls == 6 + 5 + 1
    assert (sources.count("local"), sources.count("web")) == (6, 6)
    assert answer.stop_reason == "forced"


def test_prefrag_stays_with_the_preferred_source_where_it_helps_or_the_comparison_cannot_be_read() -> None:
    for helps in ("yes", "perhaps"):
        assert run_flow("prefrag", preferring(("", LOOK), helps=helps))[2] == ["local"] * 4


def test_prefrag_takes_a_correct_answer_and_doubts_another_one_once() -> None:
    answer, calls, sources = run_flow("prefrag", preferring(("", turn_with_answer("Espoo", "CORRECT"))))
    assert (answer.text, answer.stop_reason, calls, sources) == ("Espoo", "answered", 1, [])
    answer, calls, sources = run_flow("prefrag", preferring(("", turn_with_answer("Espoo", "PARTIALLY CORRECT"))))
    assert (answer.text, answer.stop_reason, calls, sources) == ("Espoo", "answered", 2, ["local", "web"])
    answer, calls, sources = run_flow("prefrag-no-reflection", preferring(("", turn_with_answer("Espoo", "INCORRECT"))))
    assert (answer.text, calls, sources) == ("Espoo", 1, [])


@pytest.mark.filterwarnings("ignore::spolia.errors.DegradedWarning")
def test_prefrag_searches_for_the_question_and_then_forces_an_answer_where_no_action_can_be_read() -> None:
    answer, calls, sources = run_flow("prefrag", preferring(("", "<thought>Hm.</thought>")))
    assert (answer.stop_reason, calls, sources) == ("forced", 2 + 2 + 1, ["local"])  # each is sent back once


def test_prefrag_without_comparison_searches_what_the_model_names_or_both() -> None:
    assert run_flow("prefrag-prompt", preferring(("", LOOK)))[1:] == (4 + 1, ["web"] * 4)
    assert run_flow("prefrag-no-preference", preferring(("", LOOK)))[2] == ["local", "web"] * 4


def test_prefrag_of_three_sources_goes_to_the_one_that_the_model_names() -> None:
    @step
    def archive(query: Query) -> Ranking:
        return ranking_of(query, "archive", TEXTS[:1])

    text = LOOK.replace("web", "archive")
    assert run_flow("prefrag", preferring(("", text)), more=(("archive", archive),))[2][:3] == [
        "local",
        "local",
        "archive",
    ]
    preferred = LOOK.replace("web", "local")
    assert run_flow("prefrag", preferring(("", preferred)), more=(("archive", archive),))[2] == ["local"] * 4
    assert run_flow("prefrag", preferring(("", preferred)))[2][:3] == ["local", "local", "web"]


# ----------------------------------------------------------------------------------------------- FLARE, CRAG, ReAct …


def test_flare_writes_a_sentence_again_where_a_token_is_not_certain() -> None:
    rows = ((r"<text></text>", "Nokia employed Olsen. It grew."), (r"Olsen\.</text>", "It is in Espoo."), ("", "[END]"))
    answer, calls, searches = run_flow("flare", Model(rows))
    assert (calls, len(searches), answer.text) == (3, 1, "Nokia employed Olsen. It is in Espoo.")
    _, calls, searches = run_flow("flare", Model(rows, logprob=-0.5))  # p = 0.61
    assert (calls, len(searches)) == (2 + 2 + 1, 1 + 2)


def test_flare_ends_where_its_tokens_do() -> None:
    answer, _, _ = run_flow(
        "flare", Model(((r"<text></text>", "One two three."), ("", "Four five six."))), max_tokens=5
    )
    assert answer.stop_reason == "cap"


@pytest.mark.parametrize(
    ("score", "calls", "sources"), [(0.9, 1, ["local"]), (-1.0, 2, ["local", "web"]), (0.0, 2, ["local", "web"])]
)
def test_crag_corrects_what_its_evaluator_does_not_find_correct(score: float, calls: int, sources: list[str]) -> None:
    @step
    def pages(query: Query) -> Ranking:
        return ranking_of(query, "web", ("A page says that it is in Espoo.",))

    scorer = Scores((("A page", 0.9),), otherwise=score)
    _, count, searched = run_flow("crag", READS, web=pages, scorer=scorer)
    assert (count, searched) == (calls, sources)


def test_crag_with_a_grader_searches_the_web_where_one_passage_is_not_relevant() -> None:
    graded = Model((("<passage>[\\s\\S]*Salt", "no"), ("<passage>", "yes"), ("", "Espoo [1].")))
    _, calls, sources = run_flow("crag-grader", graded)
    assert (calls, sources) == (3 + 1 + 1, ["local", "web"])


def test_self_rag_retrieves_where_the_model_wants_to_and_keeps_the_answer_that_it_judges_best() -> None:
    def judging(retrieves: str) -> Model:
        rows = (
            ("which kind a question", retrieves), (r"Salt[\s\S]*\[Relevant\]", "Salo"),
            (r"\[Fully supported\]$", "[Utility:5]"), (r"\[Relevant\]Espoo$", "[Fully supported]"),
            (r"Espoo[\s\S]*\[Relevant\]$", "Espoo"), (r"\[Relevant\]$", "unclear"), ("what you know", "Salo"),
            ("Espoo", "[Relevant]"), ("", "[Irrelevant]"),
        )  # fmt: skip
        return Model(rows)

    answer, calls, searches = run_flow("self-rag", judging("[Retrieval]"))
    assert (answer.text, calls, searches) == ("Espoo [2]", 1 + 4 * 3, ["local"])
    answer, calls, searches = run_flow("self-rag", judging("[No Retrieval]"))
    assert (answer.text, calls, searches) == ("Salo", 2, [])


def test_self_rag_without_passages_answers_from_what_it_knows() -> None:
    rows = (("which kind a question", "[Retrieval]"), ("what you know", "Espoo"), ("", "[Irrelevant]"))
    answer, calls, _ = run_flow("self-rag", Model(rows), search=nowhere)
    assert (answer.text, answer.stop_reason, calls) == ("Espoo", "answered", 2)


@step
def thirty(query: Query) -> Ranking:
    return ranking_of(query, "local", [f"Passage {number} of {query.text}." for number in range(30)])


@pytest.mark.parametrize(("name", "most"), [("self-rag", 1 + 4 * 10), ("dr-rag", 1), ("prefrag-no-preference", 7)])
def test_many_passages_do_not_take_more_calls_than_are_said(name: str, most: int) -> None:
    rows = (("which kind a question", "[Retrieval]"), ("one search at a time", LOOK), ("", "Espoo"))
    _, calls, searches = run_flow(name, Model(rows), search=thirty)  # which compares calls with the bound
    assert calls <= most
    assert len(searches) <= 1 + 5 or name != "dr-rag"


def test_react_looks_a_word_up_again_where_it_stopped() -> None:
    prompts: list[str] = []

    @dataclass(frozen=True)
    class Heard(Model):
        def generate(self, prompt: Prompt, **settings: Any) -> Any:
            prompts.append(prompt.text)
            return super().generate(prompt, **settings)

    reply = "<thought>c</thought><lookup>Nokia</lookup>"
    run_flow("react", Heard((("search: Olsen", reply), ("", "<thought>b</thought><search>Olsen</search>"))))
    first, second, third = (f"lookup: Nokia\n{observation}" for observation in (*TEXTS[:2], "Nothing more was found."))
    log = prompts[4]
    assert log.index(first) < log.index(second) < log.index(third)


@pytest.mark.parametrize(
    ("sentence", "searched"),
    [
        ("Einstein (1879-1955) was born in Ulm.", True), ("That is the birthplace of Olsen.", True),
        ("That is, he left.", False), ("So it is in Espoo.", False), ("There are 3 + 4 = 7 of them.", False),
    ],
)  # fmt: skip
def test_ircot_searches_with_sentences_that_state_a_fact(sentence: str, searched: bool) -> None:
    queries: list[str] = []

    @step
    def noting(query: Query) -> Ranking:
        queries.append(query.text)
        return local(query)

    run_flow("ircot", Model((("<thoughts></thoughts>", sentence), ("", "So the answer is: Espoo."))), search=noting)
    assert (queries[-1] == sentence) is searched


def test_react_acts_until_it_answers_or_seven_turns_are_over() -> None:
    turns = (
        ("thinking and acting[\\s\\S]*lookup:", "<thought>d</thought><answer>Espoo [2]</answer>"),
        ("thinking and acting[\\s\\S]*search:", "<thought>c</thought><lookup>headquarters</lookup>"),
        ("thinking and acting", "<thought>b</thought><source>web</source><search>Olsen</search>"),
    )
    answer, calls, sources = run_flow("react", Model(turns))
    assert (answer.text, answer.stop_reason, calls, sources) == ("Espoo [2]", "answered", 3, ["web"])
    assert answer.citations[0].quote == TEXTS[1]
    stubborn = Model((("thinking and acting", "<thought>b</thought><search>Olsen</search>"), ("", "Forced")))
    answer, calls, sources = run_flow("react", stubborn)
    assert (answer.text, answer.stop_reason, calls, sources) == ("Forced", "cap", 7 + 1, ["local"] * 7)
    assert run_flow("react-concat", stubborn)[2] == ["local", "web"] * 7


@pytest.mark.parametrize(("arm", "calls", "searches"), [("none", 2, 0), ("one", 2, 1), ("several", 3, 1)])
def test_adaptive_rag_searches_as_often_as_the_question_needs(arm: str, calls: int, searches: int) -> None:
    rows = (("several: a question", arm), ("step by step", "So the answer is: Espoo."), ("", "Espoo."))
    _, count, sources = run_flow("adaptive-rag", Model(rows))
    assert (count, len(sources)) == (calls, searches)


def test_auto_rag_searches_ten_times_then_remembers_five() -> None:
    keen = Model((("as often as you need", "<thought>!</thought><search>more</search>"), ("", "A passage.")))
    answer, calls, sources = run_flow("auto-rag", keen)
    assert (answer.stop_reason, calls, sources) == ("abstained", 10 + 1 + 2 * 5, ["local"] * 10)
    done = Model((("new passages", "<thought>!</thought><answer>Espoo</answer>"), *keen.replies))
    answer, calls, _ = run_flow("auto-rag", done)
    assert (answer.text, answer.stop_reason, calls) == ("Espoo", "answered", 2)


def test_planrag_plans_again_where_it_has_to_and_keeps_what_it_gathered() -> None:
    rows = (
        ("has to be changed", "yes"),
        ("by a plan. Write in[\\s\\S]*<log[\\s\\S]*3 passages", "<thought>!</thought><answer>Espoo [1]</answer>"),
        ("by a plan. Write in", "<thought>!</thought><search>Olsen</search>"),
        ("", "1. Find the employer."),
    )
    answer, calls, sources = run_flow("planrag", Model(rows))
    assert (answer.text, answer.stop_reason, calls, sources) == ("Espoo [1]", "answered", 1 + 3 + 1, ["local"])


def test_planrag_ends_after_fifteen_turns() -> None:
    rows = (
        ("has to be changed", "no"),
        ("by a plan. Write in", "<thought>!</thought><search>Olsen</search>"),
        ("", "x"),
    )
    answer, calls, _ = run_flow("planrag", Model(rows))
    assert (answer.stop_reason, calls) == ("cap", 1 + 2 * 15 + 1)


def meaning(*turns: tuple[str, str], holds: str = "yes") -> Model:
    """Writes meanings of the question that a pattern finds, and says whether they hold."""
    replies = ((f"may mean several[\\s\\S]*<question>[^<]*{pattern}", reply) for pattern, reply in turns)
    return Model((*replies, ("confirm the answer", holds), ("", "Espoo, in Finland [2].")))


TWO = "Which town? | Espoo\nWhich country? | Finland"


@pytest.mark.parametrize(
    ("model", "calls", "stop"),
    [
        (meaning(("", "\n".join(f"Where is {n}? | {n}" for n in range(10)))), 1 + 10 + 1, "full"),
        (meaning(("", TWO)), (3 + 3 + 3 + 1) + 2 + 1, "exhausted"),  # of the third restart, the question alone
        (meaning(("", "\n".join(f"Where is {n}? | {n}" for n in range(4)))), (5 + 5 + 5) + 4 + 1, "cap"),
        (meaning(("", "none")), (4 + 3) + 1, "exhausted"),  # twice, since nothing survives: with pruning and without
        (meaning(("", "Which town? | Espoo"), holds="no"), 4 + 4 + (2 + 2 + 1) + 1, "exhausted"),
    ],
)
def test_a_tree_of_clarifications_searches_once_and_ends_as_published(model: Model, calls: int, stop: str) -> None:
    answer, count, searches = run_flow("tree-of-clarifications", model)
    assert (count, searches, answer.stop_reason) == (calls, ["local"], stop)
    assert answer.text == "Espoo, in Finland [2]."


def test_a_tree_of_clarifications_opens_what_lies_too_deep_in_no_restart() -> None:
    levels = [(f"Level {n}", f"Level {n + 1}? | {n}") for n in range(1, 9)]
    answer, calls, _ = run_flow("tree-of-clarifications", meaning(*levels, ("Olsen", "Level 1? | 0")))
    assert (calls, answer.stop_reason) == ((4 + 4 + 4 + 1) + 4 + 1, "exhausted")  # the question and three levels


@pytest.mark.parametrize("embedder", [None, HashingEmbedder(256)])
def test_a_clarification_reads_the_passages_that_are_nearest_to_it_of_those_that_were_found(embedder: Any) -> None:
    heard: list[str] = []

    @dataclass(frozen=True)
    class Heard(Model):
        def _reply(self, prompt: Prompt) -> str:
            if "toc_meanings" in prompt.role:
                heard.append(prompt.text)
            return super()._reply(prompt)

    @step
    def hundred(query: Query) -> Ranking:
        many = [f"Olsen and his employer, part {number}." for number in range(98)]
        return ranking_of(query, "local", (*many, "Kiruna: here lies a mine.", "矿井位于基律纳。"))

    model = Heard(meaning(("mine", "none"), ("", "Where lies the mine? | Kiruna\n矿井在哪里？ | 基律纳")).replies)
    _, _, searches = run_flow("tree-of-clarifications", model, search=hundred, embedder=embedder)
    assert searches == ["local"]
    root, first, second = heard[:3]
    assert ("Kiruna" in root, "Kiruna" in first, root.count("Olsen and")) == (False, True, 5)
    assert embedder is not None or "基律纳" in second


def test_a_flow_without_a_part_says_how_to_give_it() -> None:
    with pytest.raises(Exception, match="'crag' needs a reranker"):
        find_flow("crag").build_flow({"llm": READS, "search": local, "web": web})


@check_each("name", ["naive", "rrr", "iter-retgen", "ircot", "corag", "prefrag", "react", "auto-rag"])
def test_a_flow_that_finds_nothing_says_so_and_ends(name: str) -> None:
    answer, _, _ = run_flow(name, Model(("none",)), search=nowhere, web=nowhere)
    assert (answer.citations, answer.stop_reason in find_flow(name).stop_reasons) == ((), True)
    if name not in ("corag", "prefrag", "react"):  # these may answer from what the model said before
        assert answer.abstained


class Refusing(Model):
    def _reply(self, prompt: Prompt) -> str:
        raise ModelRejected("a wrong address")


@check_each("name", ["iter-retgen", "ircot", "corag", "prefrag", "react", "auto-rag", "planrag"])
def test_a_model_that_refuses_everything_fails_the_question_of_a_loop(name: str) -> None:
    with pytest.raises(ModelRejected, match="a wrong address"):
        run_flow(name, Refusing(("",)))


@pytest.mark.parametrize(("calls", "reason"), [(1, "budget"), (3, "cap")])
def test_iter_retgen_spends_its_budget_since_every_iteration_ends_with_an_answer(calls: int, reason: str) -> None:
    answer, count, _ = run_flow("iter-retgen", READS, run_options={"budget": Budget(calls=calls)})
    assert (answer.text.startswith("Espoo"), count, answer.stop_reason) == (True, calls, reason)
