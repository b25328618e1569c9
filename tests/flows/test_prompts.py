"""Which prompts there are, what would be sent for a case, and prompts of the user's own in their place."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import spolia
from spolia.core.combinators import Branch
from spolia.errors import FlowFileError, ModelError, WiringError
from spolia.evaluation.experiment.flows import content_fingerprints
from spolia.flow_files.files import dump, load
from spolia.flow_files.prompt_preview import ANY_MODEL, build_case, build_with_defaults, preview_calls
from spolia.flow_files.prompts import find_prompt, list_shipped_prompts, name_from_place, overridden
from spolia.flow_files.schema import schema
from spolia.flows import corag_best_of_n, flare
from spolia.generation.ensemble import AnswerEnsemble, TokenEnsemble
from spolia.generation.reader import Reader
from spolia.indexing.transforms.text_enrichment import SUMMARY, Keywords, Summary
from spolia.models.parsers import Text
from spolia.models.prompting import template
from spolia.models.prompting.role import Role
from spolia.models.prompting.stand_in_models import ScriptedModel
from spolia.post_retrieval.rerankers import UPR
from spolia.pre_retrieval.rewrite import MultiQuery
from spolia.types import Message, Query, Ranking
from tests.flows.json_schema import valid

PACKAGE = Path(spolia.__file__).parent
TIDES = {"tides.txt": "The moon pulls the sea."}


def write_own_prompt(folder: Path, text: str = "Sum up: {{text}}", name: str = "indexing/summary.txt") -> Path:
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return folder


def test_every_file_is_listed_and_found_again() -> None:
    shipped_prompts = list_shipped_prompts()
    files = [path for path in PACKAGE.rglob("prompts/*.txt") if len(path.suffixes) == 1]
    assert len(shipped_prompts) == len(files) > 20
    for name, shipped_prompt in shipped_prompts.items():
        assert name_from_place(shipped_prompt.place) == name
        assert shipped_prompt.texts["en"] == (PACKAGE / shipped_prompt.place.partition(":")[2]).read_text()


def test_each_prompt_of_a_flow_says_in_every_language_what_is_material_and_which_words_are_fixed() -> None:
    """The same places and tags, and the words that a parser or a later step looks for, as the English file has them."""
    fixed = re.compile(
        r"\{\{\w+\}\}|</?\w+>|\[[A-Z][^\]]*\]|\b(?:yes|no|none)\b(?=[ .。]|$)|(?:PARTIALLY )?\bI?N?CORRECT\b"
    )
    quoted = {"en": "quoted from", "ko": "인용한 것", "zh": "引自文档", "ja": "引用"}
    for name, shipped_prompt in list_shipped_prompts().items():
        if name.startswith("flows/"):
            assert {"en", "ko", "zh"} <= set(shipped_prompt.languages)
            words = set(fixed.findall(shipped_prompt.texts["en"])) - {"no", "none"}
            for language, text in shipped_prompt.texts.items():
                assert words <= set(fixed.findall(text)), (name, language)
                assert ("{{passages}}" in text) is (quoted[language] in text), (name, language)


def test_who_asks_with_what() -> None:
    shipped_prompts = list_shipped_prompts()
    assert shipped_prompts["generation/brief"].users == ("Reader",)
    assert shipped_prompts["models/repair"].users == ("Role",)
    assert shipped_prompts["indexing/keywords"].users == ("Keywords",)
    assert shipped_prompts["indexing/keywords"].languages == ("en", "zh", "ko", "ja")
    assert shipped_prompts["indexing/keywords"].places == {"heading", "text", "at_most"}


def test_a_prompt_is_called_by_its_name_or_the_last_part_of_it() -> None:
    shipped_prompts = list_shipped_prompts()
    assert (
        find_prompt("brief", shipped_prompts)
        == find_prompt("generation/brief", shipped_prompts)
        == shipped_prompts["generation/brief"]
    )
    with pytest.raises(ModelError, match=r"No prompt is called 'sumary'\. Did you mean summary"):
        find_prompt("sumary", shipped_prompts)
    several = {"a/x": shipped_prompts["generation/brief"], "b/x": shipped_prompts["generation/brief"]}
    with pytest.raises(ModelError, match="Several prompts are called 'x': a/x, b/x"):
        find_prompt("x", several)


def test_what_would_be_sent_is_what_is_sent() -> None:
    messages: list[tuple[Message, ...]] = []

    class Keeping(ScriptedModel):
        def _reply(self, prompt: object) -> str:
            messages.append(prompt.messages)  # type: ignore[attr-defined]
            return "The moon pulls."

    part = build_case(Summary(ANY_MODEL), documents=TIDES)
    Summary(Keeping(("",)))(part)
    (sent_prompt,) = preview_calls(Summary(ANY_MODEL, max_tokens=7), part)
    assert (sent_prompt.messages, sent_prompt.max_tokens, sent_prompt.model) == (messages[0], 7, "any model")


def test_nothing_is_sent() -> None:
    class Refusing(ScriptedModel):
        def _reply(self, prompt: object) -> str:
            raise AssertionError("asked")

    assert len(preview_calls(Summary(Refusing(("",))), build_case(Summary(ANY_MODEL), documents=TIDES))) == 1


def test_what_follows_a_reply_is_seen_when_the_reply_is_given() -> None:
    part = build_case(Summary(ANY_MODEL), documents=TIDES)
    first, second = preview_calls(Summary(ANY_MODEL), part, replies=[" "])
    assert second.messages[:-1] == first.messages[:-1]  # a blank message is joined, since servers refuse it
    assert second.messages[-1].content.startswith(f"{first.messages[-1].content}\n\nYour reply cannot be used")
    assert len(preview_calls(Summary(ANY_MODEL), part, replies=["The moon pulls."])) == 1


def test_several_models_of_one_flow_are_told_apart() -> None:
    models = [ScriptedModel(("",), name=name) for name in ("one", "two")]
    flow = Branch(*(MultiQuery(model) for model in models))
    assert sorted(call.model for call in preview_calls(flow, Query("Who?"), ["none", "none"])) == ["one", "two"]


def test_the_case_that_an_operator_takes() -> None:
    ranking = build_case(Reader(ANY_MODEL), "Who?", {"a": "A.", "b": "B."})
    assert isinstance(ranking, Ranking)
    assert [node.text for node in ranking.nodes] == ["A.", "B."]
    assert build_case(MultiQuery(ANY_MODEL), "Who?") == Query("Who?")


@pytest.mark.parametrize(
    ("operator", "question", "documents", "says"),
    [
        (Summary, "Who?", {}, "--document"),
        (Reader, "Who?", {}, "--document"),
        (Reader, "", TIDES, "--question"),
        (MultiQuery, "", {}, "--question"),
    ],
)
def test_a_case_that_lacks_something(operator: type, question: str, documents: dict[str, str], says: str) -> None:
    with pytest.raises(WiringError, match=says):
        build_case(operator(ANY_MODEL), question, documents)


def test_an_operator_that_needs_more_than_a_model() -> None:
    assert build_with_defaults(Keywords) == Keywords(ANY_MODEL)
    from spolia.indexing.transforms.contextual_headers import ContextualHeaders

    with pytest.raises(WiringError, match="ContextualHeaders needs splitter"):
        build_with_defaults(ContextualHeaders)


def test_a_folder_of_ones_own_takes_the_place_of_what_is_called_the_same(tmp_path: Path) -> None:
    flow = Branch(Summary(ANY_MODEL), Keywords(ANY_MODEL))
    overriding = overridden(flow, write_own_prompt(tmp_path))
    part = build_case(Summary(ANY_MODEL), documents=TIDES)
    (prompt,) = preview_calls(overriding.arms[0], part)
    assert prompt.messages == (Message("user", "Sum up: The moon pulls the sea."),)
    assert overriding.arms[1] is flow.arms[1]
    assert overriding.arms[0].role.parser is SUMMARY.parser
    assert load(dump(overriding)) == overriding


@pytest.mark.parametrize("name", ["flare_go_on", "corag_reply"])
def test_the_prompt_that_a_step_has_by_default_is_replaced_too(name: str, tmp_path: Path) -> None:
    (tmp_path / "flows").mkdir()
    (tmp_path / "flows" / f"{name}.txt").write_text("[user]\nMine: {{question}}\n")
    step: Any = {"flare_go_on": flare.write, "corag_reply": corag_best_of_n.promise}[name]
    assert dict(overridden(step, tmp_path).arguments)["role"].prompt == str(tmp_path / "flows" / f"{name}.txt")
    kept_step = step.but(role=Role("spolia:flows/prompts/ircot_thought.txt", Text()))
    assert overridden(kept_step, tmp_path) is kept_step


def test_another_prompt_is_another_fingerprint(tmp_path: Path) -> None:
    overriding = overridden(Summary(ANY_MODEL), write_own_prompt(tmp_path))
    fingerprint_before = overriding.role.fingerprint()
    assert fingerprint_before != SUMMARY.fingerprint()
    write_own_prompt(tmp_path, "In brief: {{text}}")
    assert overriding.role.fingerprint() != fingerprint_before


@pytest.mark.parametrize(
    "operator", [Reader, AnswerEnsemble, TokenEnsemble, UPR], ids=lambda operator: operator.__name__
)
def test_another_text_of_a_prompt_file_is_another_resource(tmp_path: Path, operator: type) -> None:
    file = write_own_prompt(tmp_path, "{{passages}} {{question}}", "mine.txt") / "mine.txt"
    flow = operator(ANY_MODEL, prompt=str(file))
    fingerprints_before, shipped_one = content_fingerprints(flow), content_fingerprints(operator(ANY_MODEL))
    file.write_text("{{passages}} {{question}} Think.")
    assert content_fingerprints(flow) != fingerprints_before
    assert content_fingerprints(operator(ANY_MODEL)) == shipped_one
    assert any("prompts/" in name for name in shipped_one)


def test_the_readers_prompt_and_the_one_for_repairs(tmp_path: Path) -> None:
    write_own_prompt(tmp_path, "{{passages}} {{question}}!", "generation/answer.txt")
    write_own_prompt(tmp_path, "Again: {{reason}}", "models/repair.txt")
    reader, brief, summary = (
        overridden(flow, tmp_path)
        for flow in (Reader(ANY_MODEL), Reader(ANY_MODEL, prompt="brief"), Summary(ANY_MODEL))
    )
    assert reader.prompt == str(tmp_path / "generation/answer.txt")
    assert brief.prompt == "brief"
    assert summary.role == SUMMARY.but(repair=str(tmp_path / "models/repair.txt"))


def test_a_folder_in_several_languages(tmp_path: Path) -> None:
    write_own_prompt(tmp_path)
    write_own_prompt(tmp_path, "概括：{{text}}", "indexing/summary.zh.txt")
    flow = overridden(Summary(ANY_MODEL), tmp_path)
    (prompt,) = preview_calls(flow, build_case(flow, documents={"a": "月亮牵引大海。"}))
    assert prompt.messages[0].content == "概括：月亮牵引大海。"


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("indexing/sumary.txt", "x", r"in the place of no prompt\. Write a name as indexing/summary\.txt"),
        ("summary.txt", "x", "in the place of no prompt"),
        ("indexing/summary.fr.txt", "x", "in the place of no prompt"),
        ("indexing/summary.txt", "{{txt}}", r"place \{\{txt\}\}, which is never filled\. Write some of heading"),
        ("indexing/summary.zh.txt", "{{text}}", r"beside no summary\.txt"),
    ],
)
def test_a_file_that_would_never_be_used(tmp_path: Path, name: str, text: str, says: str) -> None:
    with pytest.raises(ModelError, match=says):
        overridden(Summary(ANY_MODEL), write_own_prompt(tmp_path, text, name))


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="spolia prompts override NAME"):
        overridden(Summary(ANY_MODEL), tmp_path / "none")


def test_a_flow_file_changes_a_role_in_one_field() -> None:
    flow = load("Summary: {llm: {ScriptedModel: {replies: [x]}}, role: {prompt: mine.txt, language: ko}}")
    assert isinstance(flow, Summary)
    assert flow.role == SUMMARY.but(prompt="mine.txt", language="ko")
    assert load(dump(flow)) == flow


def test_a_role_that_is_written_whole_takes_nothing_from_the_operators_own() -> None:
    whole = "role: {prompt: a.txt, parser: {Text: {}}, default: nothing}"
    flow = load(f"Summary: {{llm: {{ScriptedModel: {{replies: [x]}}}}, {whole}}}")
    assert isinstance(flow, Summary)
    assert (flow.role.default, flow.role.repair) == ("nothing", "spolia:models/prompts/repair.txt")


def test_a_field_that_a_role_does_not_have_is_told() -> None:
    with pytest.raises(FlowFileError, match="promt"):
        load("Summary: {llm: {ScriptedModel: {replies: [x]}}, role: {promt: mine.txt}}")


@pytest.mark.slow
def test_the_schema_of_flow_files_allows_one_field_of_a_role() -> None:
    flow_schema = schema()
    model = {"ScriptedModel": {"replies": ["x"]}}
    assert valid({"Summary": {"llm": model, "role": {"prompt": "mine.txt"}}}, flow_schema, flow_schema)
    assert not valid({"Summary": {"llm": model, "role": {"promt": "mine.txt"}}}, flow_schema, flow_schema)


def test_all_prompts_can_be_read() -> None:
    for shipped_prompt in list_shipped_prompts().values():
        assert shipped_prompt.places
        for prompt_template in template.read_all(shipped_prompt.place).values():
            assert prompt_template.messages[-1].role == "user"
