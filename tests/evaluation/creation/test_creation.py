"""Questions are made of passages, dropped for a reason each, and asked of a model once."""

from __future__ import annotations

from pathlib import Path

import pytest

from spolia import Budget, ChatModel, Corpus, Run, Runs, ScriptedModel, check, dump, load
from spolia.errors import ModelUnavailable
from spolia.evaluation.creation import creation
from spolia.evaluation.creation.creation import CreatedQuestions, create, estimate
from spolia.evaluation.creation.draft import SampleRange
from spolia.evaluation.creation.items import item_of
from spolia.evaluation.creation.recipes import TYPES, recipe
from spolia.models.protocols import LanguageModel

from . import documents


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return documents.store(tmp_path_factory.mktemp("creation"))


def create_factoids(corpus: Corpus, llm: LanguageModel, n: int = 4, **options: object) -> CreatedQuestions:
    return create({recipe("factoid", corpus.group(), llm, **options): n})  # type: ignore[arg-type]


def test_each_question_is_kept_or_dropped_for_a_reason(corpus: Corpus) -> None:
    created_questions = create_factoids(corpus, documents.model())
    assert [draft.question for draft in created_questions.kept] == ["When was Ann Bellson born?"]
    assert created_questions.counts == {
        "KeepSelfContained": {"it points at": 1, "nobody understands it who does not see the passage": 1},
        "KeepAnswered": {"its passages do not answer it": 1},
    }
    assert (created_questions.missing, created_questions.stopped) == ({"factoid": 3}, {"factoid": "passages"})


def test_gold_is_the_quoted_words_and_says_where_it_is_from(corpus: Corpus) -> None:
    (draft,) = create_factoids(corpus, documents.model()).kept
    item = item_of(draft)
    ((quote,),) = item.gold
    text = documents.TEXTS["ann.txt"]
    assert (item.answers, str(quote)) == (("1871",), f"ann.txt[0:{text.index(', as the')}]")
    meta = dict(item.meta)
    assert meta["passages"] == f'["{draft.passages[0].id}"]'
    assert [use.step for use in draft.made_by] == [
        "WriteQuestion", "KeepSelfContained", "WriteAnswer", "KeepAnswerable",
    ]  # fmt: skip
    assert draft.passed[-1] == "DropNearDuplicates"


def test_a_row_does_not_depend_on_its_neighbours(corpus: Corpus) -> None:
    flow = recipe("factoid", corpus.group(), documents.model())
    drafts = flow.sample(SampleRange(0, 4))
    together = flow.body.batch(drafts)
    assert together == [flow.body(draft) for draft in drafts]
    assert together == flow.body.batch(drafts[::-1])[::-1]
    texts = [draft.passages[0].text for draft in drafts]
    for draft in drafts:  # no prompt holds another row's passage
        prompts = [str(call) for call in prompts_of(flow.body.steps[0], draft)]  # type: ignore[attr-defined]
        assert prompts
        assert not any(other_text in prompts[0] for other_text in texts if other_text != draft.passages[0].text)


def prompts_of(step: object, draft: object) -> list[object]:
    from spolia.core.replacement import replace_parts
    from spolia.models.prompting.stand_in_models import Silent, Unanswered

    prompts: list[object] = []
    llm = step.llm  # type: ignore[attr-defined]
    silent = replace_parts(step, lambda part: Silent(part, lambda m, p, t: prompts.append(p)) if part is llm else part)
    with pytest.raises(Unanswered):
        silent(draft)
    return prompts


def test_a_longer_sample_begins_with_the_shorter_one(corpus: Corpus) -> None:
    sample = recipe("factoid", corpus.group(), documents.model()).sample
    assert sample(SampleRange(0, 4))[:2] == sample(SampleRange(0, 2))
    assert sample(SampleRange(1, 3)) == sample(SampleRange(0, 4))[1:3]
    reseeded_sample = recipe("factoid", corpus.group(), documents.model(), seed=1).sample
    assert {d.passages[0].id for d in reseeded_sample(SampleRange(0, 9))} == {
        d.passages[0].id for d in sample(SampleRange(0, 9))
    }


def test_a_recipe_is_an_ordinary_flow(corpus: Corpus) -> None:
    flow = recipe("factoid", corpus.group(), documents.model()).flow
    assert [draft.is_kept for draft in flow(SampleRange(0, 4))].count(True) == 1
    report = check(flow)
    assert (report.takes, report.gives, report.problems) == ("SampleRange", "tuple[QuestionDraft, ...]", ())


@pytest.mark.parametrize("type", TYPES)
def test_a_recipe_is_written_as_a_flow_file_and_read_again(corpus: Corpus, type: str) -> None:
    llm = ChatModel("m", "http://127.0.0.1:1/v1", api_key_env="")
    flow = recipe(type, corpus.group(), llm, evolve=("compress",), unknown=True).flow
    assert load(dump(flow)) == flow


@pytest.mark.slow
def test_threads_and_a_run_change_nothing(corpus: Corpus) -> None:
    plain = create_factoids(corpus, documents.model())
    for threads in (1, 8):
        with Run(threads=threads):
            assert create_factoids(corpus, documents.model()) == plain


@pytest.mark.slow
def test_what_was_asked_is_not_asked_again(corpus: Corpus, tmp_path: Path) -> None:
    for calls in (10, 0):
        with Runs(tmp_path / "runs.db") as runs, Run(cache=runs.cache) as run, run.lane() as lane:
            created_questions = create_factoids(corpus, documents.model())
        assert (len(created_questions.kept), lane.spent.calls) == (1, calls)


@pytest.mark.slow
def test_a_spent_budget_ends_the_work_and_a_larger_one_goes_on(corpus: Corpus, tmp_path: Path) -> None:
    with Runs(tmp_path / "runs.db") as runs:
        with Run(cache=runs.cache, budget=Budget(calls=3), threads=1) as run, run.lane() as lane:
            first = create_factoids(corpus, documents.model())
        assert (first.stopped, lane.spent.calls) == ({"factoid": "budget"}, 3)
        with Run(cache=runs.cache) as run, run.lane() as lane:
            assert len(create_factoids(corpus, documents.model()).kept) == 1
        assert lane.spent.calls == 7


def test_a_model_that_writes_nothing_useful_is_not_asked_for_ever(
    corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(creation, "BATCH_SIZE", 1)
    created_questions = create_factoids(corpus, ScriptedModel(("none",)), n=1)
    assert (len(created_questions.dropped), created_questions.stopped) == (4, {"factoid": "tries"})


def test_an_estimate_asks_nothing_and_counts_every_step(corpus: Corpus) -> None:
    costs = estimate(recipe("factoid", corpus.group(), documents.model()), 100)
    assert costs["calls"] == 400
    assert costs["tokens"] > 0
    assert costs["most_calls"] == 100 * 4 * 8
    assert estimate(recipe("unanswerable", corpus.group(), documents.model()), 100)["most_calls"] == 100 * 4 * 5


@pytest.mark.slow
def test_a_model_that_cannot_be_reached_is_an_error(corpus: Corpus) -> None:
    from spolia.testing.server import closed_port_url

    with pytest.raises(ModelUnavailable):
        create_factoids(corpus, ChatModel("m", closed_port_url(), api_key_env="", retries=0))
