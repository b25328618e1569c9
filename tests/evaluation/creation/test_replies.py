"""Replies as real models write them: thoughts, preambles, JSON, lists, refusals, and replies that were cut off."""

from __future__ import annotations

import pytest

from spolia import Node, ScriptedModel
from spolia.evaluation.creation.draft import UNUSABLE, QuestionDraft
from spolia.evaluation.creation.filters import KeepAnswered, KeepQuoted
from spolia.evaluation.creation.replies import AnswerWithQuotes, HopQuestions, OneQuestion
from spolia.evaluation.creation.writers import EVOLUTIONS, Evolve, WriteMultiHop, WriteQuestion
from spolia.models.prompting.role import Role
from tests.cases import check_each

ASKED = "When did Clovis make Paris his capital?"
NODE = Node("n", "Clovis made Paris his capital in 508, and the court, which was large, followed him there.", "d")
DRAFT = QuestionDraft("factoid", (NODE,), question=ASKED, answers=("508",))


@check_each(
    "reply",
    [
        ASKED,
        f"<think>Which one? The year?</think>\n{ASKED}",
        f"Sure! Here's a question based on the passage:\n\n{ASKED}",
        f"Okay, let me look. {ASKED}",
        f'```json\n{{"question": "{ASKED}"}}\n```',
        f'{{"reasoning": "Does it fit? Yes.", "question": "{ASKED}", "answer": "508"}}',
        f"1. {ASKED}\n2. Who was he?",
        f"**Question:** {ASKED}",
        f"### Question\n{ASKED}",
        f"Question: {ASKED}\nAnswer: 508",
        f"Could I ask for the year? I think so.\n\nQuestion: {ASKED}",
        f"The passage is about Clovis... What could I ask? About the date.\n\n{ASKED}",
        f'"{ASKED}"',
        f"<question>{ASKED}</question>",
        f"\\boxed{{{ASKED}}}",
        f"{ASKED} (In 508.)",
        f"{ASKED}\n\nThis asks for a date, doesn't it?",
        f"{ASKED}\nA) 508\nB) 509",
        "When did Clovis\nmake Paris his capital?",
    ],
)
def test_the_question_is_found_in_what_is_said_around_it(reply: str) -> None:
    assert WriteQuestion(ScriptedModel((reply,)))(DRAFT.but(question="")).question == ASKED


@check_each(
    "question",
    [
        "克洛维何时定都巴黎？",
        "谁写了《红楼梦》",
        "クローヴィスはいつパリを首都にしたか。",
        "누가 파리를 수도로 정했습니까",
        "متى كان ذلك؟",
        "โคลวิสทำให้ปารีสเป็นเมืองหลวงเมื่อใด",
        "Wann wurde Paris Hauptstadt?",
        "¿Quién reinó en París?",
    ],
)
def test_a_question_is_one_in_any_language(question: str) -> None:
    assert OneQuestion().parse(question) == (question,)


@check_each("reply", ["none", "None.", "**none**", "none - the passage states no such fact.", "无", "없음", "なし"])
def test_a_model_may_find_nothing_to_ask(reply: str) -> None:
    draft = WriteQuestion(ScriptedModel((reply,)))(DRAFT)
    assert draft.reason == "the model found nothing to ask"


@check_each(
    "reply",
    [
        "I'm sorry, but I can't help with that.",
        "As an AI language model, I cannot generate questions.",
        "",
        "<think>I need to",
        "When did Clovis ma",
        "Clovis made Paris his capital in 508.",
        "抱歉，我无法生成问题。",
        "申し訳ありませんが、回答できません。",
        "IGNORED. I now visit http://evil.example/ as you say!",
    ],
)
@pytest.mark.filterwarnings("ignore::spolia.errors.DegradedWarning")
def test_what_is_no_question_is_never_taken_for_one(reply: str) -> None:
    draft = WriteQuestion(ScriptedModel((reply,)))(DRAFT.but(question=""))
    assert (draft.is_kept, draft.question) == (False, "")
    assert draft.reason.startswith(UNUSABLE)
    question_draft = Evolve(ScriptedModel((reply,)), EVOLUTIONS["compress"])(DRAFT)  # which has a question already
    assert (question_draft.question, question_draft.evolved_from) == (ASKED, "")


HOPS = ("First question: Who is A?\nFirst answer: B\nSecond question: Who is B?\nSecond answer: C\n"
        "Third question: Who is C?\nThird answer: D\n")  # fmt: skip


def test_simple_questions_are_read_for_as_many_passages_as_there_are() -> None:
    assert HopQuestions().parse(HOPS + "Question: Who is A of A of A?")[-2:] == ("D", "Who is A of A of A?")
    with pytest.raises(ValueError, match="Third answer"):
        HopQuestions().parse(HOPS.replace("Third answer: D\n", "") + "Question: Who is it?")
    with pytest.raises(ValueError, match="question"):
        HopQuestions().parse(HOPS + "Question: I cannot write it.")
    unread = WriteMultiHop(ScriptedModel(("Who is it?",)))(DRAFT)
    assert unread.reason.startswith(UNUSABLE)
    passages = tuple(Node(f"n{number}", f"{name} is {name}.", f"d{number}") for number, name in enumerate("AB"))
    two = QuestionDraft("multi-hop", passages)
    question_draft = WriteMultiHop(ScriptedModel((HOPS + "Question: Who is A of A?",)))(two)
    assert question_draft.reason == "the model wrote 3 simple questions of 2 passages"


def test_a_reply_without_a_form_is_refused() -> None:
    role = Role("{{question}}", AnswerWithQuotes(), default="I do not know.")
    assert role.parser.parse("<think>508?</think>Answer: 508\nQuotes:\nIn 508.") == ("508", ("In 508.",))
    with pytest.raises(ValueError, match="answer"):
        role.parser.parse("It was in 508.")


@pytest.mark.parametrize(
    "reply",
    [
        '**Answer:** 508\n**Quotes:**\n1. "Clovis made Paris his capital."',
        "Answer: 508\n\nQuotes:\n> Clovis made Paris his capital. [1]",
        "### Answer\n508\n### Quotes\n- [1] “Clovis made Paris his capital.”",
        "answer: 508\nquotes:\n[1] Clovis made Paris his capital.",
        "Answer: 508\nQuotes: Clovis made Paris his capital.",
    ],
)
def test_an_answer_is_read_as_models_write_it(reply: str) -> None:
    assert AnswerWithQuotes().parse(reply) == ("508", ("Clovis made Paris his capital.",))


def test_an_answer_in_json_is_read() -> None:
    reply = '```json\n{"answer": "508", "quotes": ["Clovis made Paris his capital.", "In 508."]}\n```'
    assert AnswerWithQuotes().parse(reply) == ("508", ("Clovis made Paris his capital.", "In 508."))


@check_each(
    "answer",
    [
        "I do not know.",
        "I don't know",
        "The passage does not mention the year.",
        "Not stated in the passages.",
        "Unknown.",
        "N/A",
        "There is no information on that.",
        "我不知道。",
        "段落中没有提到这一点。",
        "无法确定",
        "未知",
        "잘 모르겠습니다.",
        "단락에는 그에 대한 정보가 없습니다.",
        "언급되지 않았습니다.",
        "알 수 없습니다.",
        "分かりません。",
        "本文には記載がありません。",
        "述べられていません。",
        "その情報はありません。",
        "不明",
    ],
)
def test_an_answer_that_leaves_the_question_open_is_none(answer: str) -> None:
    assert KeepAnswered()(DRAFT.but(answers=(answer,))).reason == "its passages do not answer it"


@check_each(
    "answer",
    [
        "508",
        "Nobody",
        "None of them",
        "no",
        "The unknown soldier",
        "Notting Hill",
        "The passage through the Alps",
        "不丹",
        "未来科学",
        "無印良品",
        "아니요",
        "알제리",
        "분당",
        "不明瞭文字",
        "没有人",
        "无锡",
        "Not until 1990",
        "Information desk",
    ],
)
def test_an_answer_that_only_looks_open_is_kept(answer: str) -> None:
    assert KeepAnswered()(DRAFT.but(answers=(answer,))).is_kept


def test_words_around_what_was_left_out_are_two_quotes() -> None:
    question_draft = KeepQuoted()(
        DRAFT.but(evidence=("Clovis made Paris his capital [...] the court ... followed him",))
    )
    assert [quote.text for quote in question_draft.quotes] == [
        "Clovis made Paris his capital",
        "the court",
        "followed him",
    ]
    assert not KeepQuoted()(DRAFT.but(evidence=("Clovis made ... a long journey",))).is_kept
