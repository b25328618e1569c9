"""Of a fictional world it is known what is true: what is kept of its questions has the right answer and gold."""

from __future__ import annotations

import pytest

from spolia import Corpus, sync
from spolia.evaluation.creation.creation import CreatedQuestions, create
from spolia.evaluation.creation.items import item_of
from spolia.evaluation.creation.recipes import LINKED, recipe
from spolia.evaluation.simulation.world import FictionalWorld
from spolia.types import Quote

from .world_model import Fact, WorldModel, answer_from, facts_of

pytestmark = pytest.mark.slow
WORLD = FictionalWorld(5, people=60, questions=0)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    folder = tmp_path_factory.mktemp("world")
    (folder / "docs").mkdir()
    for document in WORLD.documents():
        (folder / "docs" / f"{document['id']}.md").write_text(f"# {document['title']}\n\n{document['text']}\n")
    corpus = Corpus(folder / "world.spolia")
    sync(folder / "docs", corpus)
    return corpus


TEXTS = {f"{document['id']}.md": document["text"] for document in WORLD.documents()}
"""What the world says, by file."""


def create_questions(corpus: Corpus, type: str, n: int, errs: float) -> CreatedQuestions:
    return create({recipe(type, corpus.group(), WorldModel(errs=errs)): n})


def true_answer(question: str) -> tuple[str, set[tuple[str, str]]]:
    """The true answer of a question, and the sentences that state it, by file: read from the whole world."""
    answer_and_facts = answer_from(question, list(TEXTS.values()))
    assert answer_and_facts is not None, question
    names = list(TEXTS)
    return answer_and_facts[0], {(names[fact.passage], fact.sentence) for fact in answer_and_facts[1]}


@pytest.mark.parametrize(("type", "n"), [("factoid", 20), ("multi-hop", 16), ("3-hop", 12), ("4-hop", 6),
                                         ("comparison", 12)])  # fmt: skip
@pytest.mark.parametrize("errs", [0.0, 0.4])
def test_gold_is_what_the_world_says_for_every_question_that_is_kept(
    corpus: Corpus, type: str, n: int, errs: float
) -> None:
    created_questions = create_questions(corpus, type, n, errs)
    assert len(created_questions.kept) >= n * (0.25 if errs else 0.5), (
        created_questions.counts,
        created_questions.stopped,
    )
    for draft in created_questions.kept:
        item = item_of(draft)
        answer, sentences = true_answer(item.question)
        gold = {(quote.document, quote.text.rstrip(".") + ".") for group in item.gold for quote in group
                if isinstance(quote, Quote)}  # fmt: skip
        assert (item.answers, gold) == ((answer,), sentences), item.question
        assert len(item.documents) == LINKED.get(type, 1)
        if "hop" in type:
            steps = [(hop.gold_id, hop.answer) for hop in item.decomposition]
            assert len(steps) == LINKED[type]
            assert all(answer in TEXTS[file] for file, answer in steps)


@pytest.mark.parametrize("errs", [0.0, 0.4])
def test_no_document_answers_what_is_called_unanswerable(corpus: Corpus, errs: float) -> None:
    created_questions = create_questions(corpus, "unanswerable", 12, errs)
    assert len(created_questions.kept) == 12
    assert all(answer_from(draft.question, list(TEXTS.values())) is None for draft in created_questions.kept)
    assert ("KeepUnanswerable" in created_questions.counts) is (errs > 0)


def test_mistakes_are_made_and_each_kind_is_dropped(corpus: Corpus) -> None:
    """Else the tests above would show nothing."""
    factoids, hops = (
        create_questions(corpus, "factoid", 60, 0.6).counts,
        create_questions(corpus, "multi-hop", 40, 0.6).counts,
    )
    assert {"KeepSelfContained", "KeepQuoted", "KeepAnswerable", "KeepUnleaked"} <= set(factoids), factoids
    assert {"KeepQuoted", "KeepMultiHop"} <= set(hops), hops


def test_the_facts_of_the_world_are_read() -> None:
    facts = facts_of(list(TEXTS.values()))
    assert len(facts) > 5 * 60
    assert all(isinstance(fact, Fact) and fact.a in fact.sentence for fact in facts)
