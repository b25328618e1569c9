"""Every type of question, evolution, languages, and who may read what."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from spolia import Corpus, Node, Run, ScriptedModel, sync
from spolia.errors import DataError, StoreError
from spolia.evaluation.creation.creation import create
from spolia.evaluation.creation.draft import QuestionDraft, SampleRange, shown_passages
from spolia.evaluation.creation.filters import KeepSelfContained, place_of
from spolia.evaluation.creation.items import item_of
from spolia.evaluation.creation.near_duplicates import DropNearDuplicates
from spolia.evaluation.creation.recipes import TYPES, recipe
from spolia.evaluation.creation.sampling import SampleLinked, SamplePassages
from spolia.indexing import add_texts
from spolia.models.prompting import template
from spolia.retrieval.graph.edges import Similar
from spolia.retrieval.graph.node_graph import NodeGraph
from tests.cases import check_each

from . import documents
from .documents import ANSWERS, EVOLVES, JOINS, JUDGES, LACKS, POINTS

BOTH = "Who is the mayor of the town where Ann Bellson was born?"
JOINED = (
    "First question: In which town was Ann Bellson born?\nFirst answer: Garholm\n"
    f"Second question: Who is the mayor of Garholm?\nSecond answer: Cyr Dorlan\nQuestion: {BOTH}"
)
QUOTED = (
    "Answer: Cyr Dorlan\nQuotes:\n[1] The painter Ann Bellson was born in Garholm in 1871\n"
    "- The mayor of the small town of Garholm is Cyr Dorlan"
)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return documents.store(tmp_path_factory.mktemp("types"))


def multi_hop_model(*more: tuple[str, ...]) -> ScriptedModel:
    passage_mark = r"passages number=\"2\""
    return ScriptedModel((
        *more, (JOINS, JOINED), (POINTS, "yes"), (ANSWERS + passage_mark, QUOTED), (ANSWERS, "I do not know."),
        (JUDGES, "yes"),
    ))  # fmt: skip


@pytest.mark.slow
def test_a_question_of_two_hops_needs_both_documents(corpus: Corpus) -> None:
    (draft,) = create({recipe("multi-hop", corpus.group(), multi_hop_model()): 1}).kept
    item = item_of(draft)
    assert (item.question, item.answers, draft.links) == (BOTH, ("Cyr Dorlan",), ("Garholm",))
    assert item.documents == {"ann.txt", "garholm.txt"}
    assert [(hop.answer, hop.gold_id) for hop in item.decomposition] == [
        ("Garholm", "ann.txt"), ("Cyr Dorlan", "garholm.txt"),
    ]  # fmt: skip


@pytest.mark.slow
def test_a_question_that_one_passage_answers_is_no_question_of_two(corpus: Corpus) -> None:
    alone = (
        r"(?s)You answer a question from the passages alone(?!.*number=\"2\").*Cyr Dorlan",
        "Answer: Cyr Dorlan\nQuotes:\nx",
    )
    created_questions = create({recipe("multi-hop", corpus.group(), multi_hop_model(alone)): 1})
    assert created_questions.counts == {"KeepMultiHop": {"it is answered without one of its passages": 1}}
    half = (ANSWERS + r"number=\"2\"", "Answer: Cyr Dorlan\nQuotes:\nThe mayor of the small town of Garholm")
    created_questions = create({recipe("multi-hop", corpus.group(), multi_hop_model(half)): 1})
    assert created_questions.counts == {"KeepQuoted": {"1 of 2 passages are not quoted": 1}}


@pytest.mark.slow
def test_titles_link_documents_in_scripts_without_capitals(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    texts = {
        "a.md": "# 李白年谱\n\n"
        + "诗人李白在天宝元年来到长安城，受到皇帝的接见，并在那里居住了三年之久，写下了许多诗篇。" * 3,
        "b.md": "# 长安城\n\n" + "它是唐朝的都城，人口超过一百万，城墙周长三十六公里，街道整齐如棋盘，市场繁荣。" * 3,
        "c.md": "# 소금\n\n" + "소금은 바닷물을 증발시켜 얻거나 광산에서 채굴하며, 예로부터 귀하게 여겨졌다. " * 3,
        "d.md": "# 광부\n\n" + "광부들은 깊은 갱도에서 일했고 그 대가로 소금을 받았으며, 노동은 매우 고되었다. " * 3,
    }
    for name, text in texts.items():
        (tmp_path / "docs" / name).write_text(text)
    corpus = Corpus(tmp_path / "s.spolia")
    sync(tmp_path / "docs", corpus)
    drafts = recipe("multi-hop", corpus.group(), multi_hop_model()).sample(SampleRange(0, 9))
    assert {draft.links[0]: {node.uri for node in draft.passages} for draft in drafts} == {
        "长安城": {"a.md", "b.md"},
        "소금": {"c.md", "d.md"},
    }


def test_an_unanswerable_question_has_no_gold_and_is_answered_by_no_document(corpus: Corpus) -> None:
    asks, reads = (LACKS, "How tall was Ann Bellson?"), r"(?s)Answer from the numbered passages"
    llm = ScriptedModel((asks, (POINTS, "yes"), (reads, "I do not know."), ("", "I do not know.")))
    created_questions = create({recipe("unanswerable", corpus.group(), llm): 2})
    (draft,) = created_questions.kept  # the same question of other passages is a near-duplicate
    item = item_of(draft)
    assert (item.type, item.gold, item.answers) == ("unanswerable", (), ())
    assert created_questions.counts == {"DropNearDuplicates": {"almost the same as": 3}}
    knows = ScriptedModel((asks, (POINTS, "yes"), ("", "She was five feet tall [1].")))
    assert not create({recipe("unanswerable", corpus.group(), knows): 1}).kept


def test_a_question_is_evolved_and_says_from_what(corpus: Corpus) -> None:
    harder = "In which year did the painter Ann Bellson turn ten?"
    llm = documents.model(
        (EVOLVES + "<question>When was Ann Bellson born", harder),
        (EVOLVES, "none"),
        (ANSWERS + "turn ten", "Answer: 1881\nQuotes:\nAnn Bellson was born in Garholm in 1871"),
    )
    (draft,) = create({recipe("factoid", corpus.group(), llm, evolve=("reasoning",)): 4}).kept
    assert (draft.question, draft.evolved_from) == (harder, "When was Ann Bellson born?")
    assert dict(item_of(draft).meta)["evolved_from"] == "When was Ann Bellson born?"
    assert "evolve_reasoning" in draft.made_by[1].prompt


def test_a_known_answer_is_dropped_where_that_is_asked_for(corpus: Corpus) -> None:
    llm = documents.model((r"(?s)from what you know.*When was Ann Bellson born", "She was born in 1871."))
    assert len(create({recipe("factoid", corpus.group(), llm): 4}).kept) == 1
    created_questions = create({recipe("factoid", corpus.group(), llm, unknown=True): 4})
    assert created_questions.counts["KeepUnknown"] == {"the model answers it without any document": 1}


@pytest.mark.parametrize(
    ("text", "begins"),
    [
        ("Salt was dug in the mines of Keld.", "You write"),
        ("소금은 켈드의 광산에서 팔백 년 동안 채굴되었다.", "단락"),
        ("盐在凯尔德的矿山中开采了八百年，矿工的工资用盐支付。", "你用"),
        ("塩はケルドの鉱山で八百年のあいだ掘られていた。", "段落が"),
    ],
)
def test_prompts_are_in_the_language_of_the_passage(text: str, begins: str) -> None:
    draft = QuestionDraft("factoid", (Node("n", text),))
    place = "spolia:evaluation/creation/prompts/factoid.txt"
    system = template.read_translated(place, {"passages": shown_passages(draft, 100)}).messages[0].content
    assert system.startswith(begins)


def test_every_prompt_is_there_in_all_languages_with_the_same_places() -> None:
    folder = Path(template._path("spolia:evaluation/creation/prompts/factoid.txt")).parent
    names = {path.name.partition(".")[0] for path in folder.iterdir()}
    for name in names:
        templates = template.read_all(f"spolia:evaluation/creation/prompts/{name}.txt")
        assert set(templates) == set(template.LANGUAGES)
        assert len({prompt.places for prompt in templates.values()}) == 1, name


@check_each(
    ("question", "points"),
    [
        ("According to the text, who ruled?", True),
        ("What is shown in this table?", True),
        ("该段落说了什么？", True),
        ("本文中提到的作者是谁？", True),
        ("이 글에서 말하는 왕은 누구인가?", True),
        ("この文章の作者は誰か", True),
        ("Who signed the document of 1990?", False),
        ("What does section 8 of the treaty say?", False),
        ("谁写了《红楼梦》？", False),
        ("한글은 누가 만들었는가?", False),
    ],
)
def test_what_points_at_a_passage_is_dropped_by_rule(question: str, points: bool) -> None:
    keep = KeepSelfContained(ScriptedModel(("yes",)))
    assert keep(QuestionDraft("factoid", (), question=question)).is_kept is not points


def test_only_what_the_asker_may_read_becomes_a_question(tmp_path: Path) -> None:
    corpus = Corpus(tmp_path / "s.spolia").create()
    texts = {name: text * 2 for name, text in documents.TEXTS.items()}
    two = {"ann": texts["ann.txt"], "salt": texts["salt.txt"]}
    add_texts(corpus, two, access=lambda uri: ["ann"] if uri == "text:ann" else [])
    sample = SamplePassages(corpus.group())
    everything = SampleRange(0, 9)
    assert [draft.passages[0].uri for draft in sample(everything)] == ["text:salt"]
    with Run(principal="ann"):
        assert {draft.passages[0].uri for draft in sample(everything)} == {"text:ann", "text:salt"}
    assert [draft.passages[0].uri for draft in sample(everything)] == ["text:salt"]


def test_a_new_document_moves_none_of_the_others_past_each_other(tmp_path: Path) -> None:
    corpus = Corpus(tmp_path / "s.spolia").create()
    add_texts(corpus, {f"{n}": f"Passage number {n} says what is true of the thing {n}. " * 3 for n in range(20)})
    sample = SamplePassages(corpus.group(), seed=3)
    previous_uris = [draft.passages[0].uri for draft in sample(SampleRange(0, 99))]
    add_texts(corpus, {"new": "Something else that is long enough to be a passage of a store, twice over. " * 2})
    later_uris = [draft.passages[0].uri for draft in sample(SampleRange(0, 99))]
    assert len(previous_uris) == 20
    assert [uri for uri in later_uris if uri != "text:new"] == previous_uris


def test_the_same_words_with_another_number_or_answer_are_another_question() -> None:
    def ask(question: str, answer: str) -> QuestionDraft:
        return QuestionDraft("factoid", (), question=question, answers=(answer,))

    first = ask("What was the revenue of Acme Works in the year 2019?", "5")
    others = (
        ask("What was the revenue of Acme Works in the year 2020?", "5"),
        ask("What was the revenue of Acme Walks in the year 2019?", "5"),
        ask("What was the return of Acme Works in the year 2019?", "6"),
        ask("So what was the revenue of Acme Works in the year 2019?", "5"),
        ask("what was the revenue of Acme Works in the year 2019", "9"),
    )
    assert [draft.is_kept for draft in DropNearDuplicates()((first, *others))] == [
        True,
        True,
        True,
        True,
        False,
        False,
    ]


def test_an_unknown_type_is_refused(corpus: Corpus) -> None:
    with pytest.raises(DataError, match="factoid, concept"):
        recipe("riddle", corpus.group(), documents.model())
    assert {recipe(kind, corpus.group(), documents.model()).type for kind in TYPES} == set(TYPES)


@check_each(
    ("words", "found"),
    [
        ("Keld's mine -- the old one", None),
        ("Keld's mine - the 'old' one", None),
        ('Keld\'s mine - the "old" one.', "Keld’s mine – the “old” one"),
        ("mine – the", "mine – the"),
        ("MINE", None),
        ("", None),
        ("a.c", None),
    ],
)
def test_a_quote_is_found_whatever_the_shape_of_its_marks(words: str, found: str | None) -> None:
    text = "Keld’s mine – the “old” one, abc"
    place = place_of(words, text)
    assert (place and text[slice(*place)]) == found


@pytest.mark.slow
def test_a_store_that_may_only_be_read_gives_the_same_pairs(corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    sample = recipe("multi-hop", corpus.group(), multi_hop_model()).sample
    assert isinstance(sample, SampleLinked)

    def denied(self: NodeGraph) -> None:
        raise StoreError("it may only be read") from PermissionError(errno.EACCES, "denied")

    previous_sample = sample(SampleRange(0, 9))
    monkeypatch.setattr(NodeGraph, "snapshot", denied)
    assert {draft.passages for draft in sample(SampleRange(0, 9))} == {draft.passages for draft in previous_sample}
    with pytest.raises(StoreError):
        sample.but(graph=sample.graph.but(edges=(Similar(),)))(SampleRange(0, 9))
