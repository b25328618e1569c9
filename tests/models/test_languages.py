"""A model is asked in the language of what it is asked, where the prompt file has one beside it in that language."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import spolia
from spolia.errors import ModelError
from spolia.generation.reader import Reader
from spolia.indexing.transforms.text_enrichment import SUMMARY, Summary
from spolia.models.parsers import Text, YesNo
from spolia.models.prompting import template
from spolia.models.prompting.role import Role
from spolia.models.prompting.stand_in_models import ScriptedModel
from spolia.models.prompting.template import LANGUAGES, Setting, language_of
from spolia.stores.definition import Part
from spolia.types import Document, Hit, Node, Query, Ranking
from tests.cases import check_each

PACKAGE = Path(spolia.__file__).parent
TRANSLATED = [path for path in sorted(PACKAGE.rglob("prompts/*.txt")) if path.suffixes[:-1]]


@check_each(
    ("text", "language"),
    [
        ("What is the capital of France?", "en"),
        ("Столица Франции?", "en"),
        ("", "en"),
        ("12 + 3 = ?", "en"),
        ("法国的首都是哪里？", "zh"),
        ("臺灣最高的山", "zh"),
        ("什么是 BM25 和 HNSW？", "zh"),
        ("프랑스의 수도는 어디입니까?", "ko"),
        ("大韓民國의 首都는 어디인가요", "ko"),
        ("フランスの首都はどこですか。", "ja"),
        ("東京都知事は誰か", "ja"),
        ("Who wrote 紅樓夢 and when was it printed?", "en"),
        (
            "宫崎骏的《となりのトトロ》是哪一年上映的？那部电影讲述了两个女孩和一只森林精灵的故事，导演和原作者是谁，讲的是什么年代的日本乡村生活",
            "zh",
        ),
    ],
)
def test_the_script_tells_the_language(text: str, language: str) -> None:
    assert language_of(text) == language


READ = (
    ": none", "Q:", "A:", "[1]", "#1", "`1. …`", "yes", "undetermined", "supported", "refuted",
    "not enough information", "wrong passages", "wrong answer", "sufficient", "insufficient", "[2] > [1] > [3]",
    '"conditions"',
)  # fmt: skip
"""What the parsers read stays as it is."""


@check_each("path", TRANSLATED)
def test_a_translated_prompt_is_made_like_the_english_one(path: Path) -> None:
    name, language, _ = path.name.split(".")
    english = template.Template.from_text((path.parent / f"{name}.txt").read_text())
    prompt = template.Template.from_text(path.read_text())
    assert [message.role for message in prompt.messages] == [message.role for message in english.messages]
    assert [template._PLACE.findall(part.content) for part in prompt.messages[1:]] == [
        template._PLACE.findall(part.content) for part in english.messages[1:]
    ]
    assert (prompt.places, prompt.tags) == (english.places, english.tags)
    assert language in LANGUAGES[1:]
    assert language_of(prompt.messages[0].content) == language
    instructions, meant = (" ".join(part.messages[0].content.split()).replace("：", ": ") for part in (prompt, english))
    assert [word for word in READ if word in instructions] == [word for word in READ if word in meant]


TRAINED_WITH = {"mono_t5"}
"""Prompts that stay as a model was trained with them."""


def test_every_prompt_is_there_in_chinese_and_korean() -> None:
    english = [
        path for path in PACKAGE.rglob("prompts/*.txt") if not path.suffixes[:-1] and path.stem not in TRAINED_WITH
    ]
    assert len(english) > 30
    lacking = [
        f"{path.stem}.{language}"
        for path in english
        for language in ("zh", "ko")
        if not path.with_name(f"{path.stem}.{language}.txt").is_file()
    ]
    assert lacking == []


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "ask.txt").write_text("Enough? {{passages}} {{question}}")
    (tmp_path / "ask.zh.txt").write_text("够吗？{{passages}} {{question}}")
    return tmp_path / "ask.txt"


def first_word(role: Role[bool], **values: str | list[str]) -> str:
    """The first word of what is sent: that of the file."""
    return re.split("[ <]", role.prompt_for(values).text)[0]


def test_the_question_decides_whatever_the_passages_are_in(files: Path) -> None:
    role = Role(str(files), YesNo(), default="no")
    assert (
        first_word(role, question="谁写的？", passages=["A long passage in English, which is of no account."])
        == "够吗？"
    )
    assert first_word(role, question="Who?", passages=["一个很长的段落，用中文写成，但不起作用。"]) == "Enough?"
    assert first_word(role, question="누가 썼습니까?", passages=[]) == "Enough?"  # there is no Korean file


@pytest.mark.parametrize(
    ("text", "begins"), [("달이 조수를 일으킨다.", "글을"), ("月が潮を起こす。", "テキスト"), ("Tides.", "You")]
)
def test_without_a_question_the_longest_text_decides(text: str, begins: str) -> None:
    filled = SUMMARY.prompt_for({"heading": "海", "max_words": Setting("60"), "text": text})
    assert filled.text.startswith(begins)


def test_a_field_says_another_language(files: Path) -> None:
    role = Role(str(files), YesNo(), default="no", language="zh")
    assert first_word(role, question="Who?", passages=[]) == "够吗？"
    assert first_word(role.but(language="en"), question="谁写的？", passages=[]) == "Enough?"
    with pytest.raises(ModelError, match="language='fr'"):
        role.but(language="fr")


def test_a_reply_is_sent_back_in_the_same_language() -> None:
    role = Role("spolia:indexing/prompts/summary.txt", YesNo(), default="no")
    model = ScriptedModel((("返答は使えません", "yes"), "Hm."))
    assert role.ask(model, {"heading": "", "max_words": Setting("9"), "text": "月が潮を起こす。"}) is True


def test_a_role_is_another_one_when_a_file_in_another_language_changes(files: Path) -> None:
    role, english = (Role(str(files), YesNo(), default="no", language=language) for language in ("", "en"))
    previous_fingerprints = role.fingerprint(), english.fingerprint()
    files.with_name("ask.zh.txt").write_text("可以吗？{{passages}} {{question}}")
    assert role.fingerprint() != previous_fingerprints[0]
    assert english.fingerprint() == previous_fingerprints[1]
    previous_fingerprints = role.fingerprint(), english.fingerprint()
    files.with_name("ask.ja.txt").write_text("足りますか。{{passages}} {{question}}")
    assert role.fingerprint() != previous_fingerprints[0]
    assert english.fingerprint() == previous_fingerprints[1]


def test_a_place_counts_that_every_language_has(files: Path) -> None:
    files.with_name("ask.ko.txt").write_text("충분한가? {{question}}")
    assert Role(str(files), YesNo(), default="no").places == {"question"}


def test_the_reader_asks_in_the_language_of_the_question() -> None:
    passage = Hit(Node("n", "Clovis made Paris his capital.", document="d"), 1.0)
    model = ScriptedModel(
        (
            ("只根据编号", "巴黎 [1]。"),
            ("대괄호", "파리 [1]."),
            ("角括弧", "パリ [1]。"),
            ("from nothing", "Paris [1]."),
        )
    )
    replies = [
        Reader(model)(Ranking(Query(question), (passage,))).text
        for question in ("首都是哪里？", "수도는 어디인가?", "首都はどこか", "Which is the capital?")
    ]
    assert replies == ["巴黎 [1]。", "파리 [1].", "パリ [1]。", "Paris [1]."]
    assert Reader(model, language="ko")(Ranking(Query("Which?"), (passage,))).text == "파리 [1]."
    with pytest.raises(ModelError, match="language='x'"):
        Reader(model, language="x")


def test_a_transform_asks_in_the_language_of_the_text() -> None:
    part = Part(Node("d", "달이 조수를 일으킨다."), Document("d", "달이 조수를 일으킨다."))
    assert Summary(ScriptedModel((("이내로 요약", "달."),)))(part)[0].text == "달."
    assert Summary(ScriptedModel(("Moon.",)), role=Role(SUMMARY.prompt, Text(), default="none", language="en"))(part)
