"""A flow file is read back as an equal flow, and whatever is wrong with one is said with its line."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from spolia.core import registry
from spolia.core.codec import type_id
from spolia.core.combinators import Branch, Choice, Each, Guard, Identity, Loop, Route, Samples
from spolia.core.function import step
from spolia.core.operator import Operator
from spolia.errors import FlowFileError, GroupError
from spolia.flow_files.files import MAX_FILES, dump, inline_files, load, load_definition, load_definitions
from spolia.flow_files.yaml_text import MAX_DEPTH, MAX_NODES, YamlReader
from spolia.models.trained_weights import TrainedWeights
from spolia.post_retrieval.selection import Cut
from spolia.retrieval.bm25 import BM25
from spolia.retrieval.learned.ranker import LearnedRanker
from spolia.stores.corpus import Corpus
from spolia.stores.definition import Definition
from spolia.testing import HashingEmbedder
from spolia.types import Chain, Query, State, Value
from tests.cases import check_each


@dataclass(frozen=True)
class Shelf(Value):
    path: str
    scoped: bool = True

    def fingerprint(self) -> str | None:
        return self.path


@dataclass(frozen=True)
class Find(Operator[Query, Query]):
    shelf: Shelf
    top_k: int = 10
    alpha: float = 0.5
    words: tuple[str, ...] = ()

    def apply(self, value: Query, /) -> Query:
        return value


@step
def language(query: Query) -> str:
    return "en"


@step
def walked(state: State) -> State:
    return state.but(stop="answered")


@step
def hopped(chain: Chain) -> Chain:
    return chain


OWN_PREFIX = __name__.partition(".")[0]
OWN = (Find, Shelf, language, walked, hopped)
CHUNKS = Shelf("notes.spolia")
GIVEN = {"chunks": CHUNKS}

TEXT = """\
- Choice: [Identity, {"own:Find": {shelf: {use: chunks}, top_k: 5}}]
- Branch:
    arms:
      - own:Find: {shelf: {path: "no"}, words: ["yes", "1:30", "1e3", a b]}
      - Guard: {body: {"own:Find": {shelf: {use: chunks}}}, fallback: Identity, max_calls: 3}
      - Route:
          router: own:language
          arms:
            en: [Identity, Identity]
            no: Identity
          default: en
    min_arms: 2
"""

FLOW = Choice(Identity(), Find(CHUNKS, 5)) >> Branch(
    Find(Shelf("no"), words=("yes", "1:30", "1e3", "a b")),
    Guard(Find(CHUNKS), fallback=Identity(), max_calls=3),
    Route(language, {"en": Identity[Query]() >> Identity(), "no": Identity()}, default="en"),
    min_arms=2,
)


def with_own_ids(text: str) -> str:
    """The text with the ids that operators of this module have."""
    return text.replace("own:", f"{OWN_PREFIX}:")


def read(text: str) -> Operator[Any, Any]:
    return load(with_own_ids(text), objects=GIVEN, operators=OWN)


def test_a_file_is_the_flow_that_it_describes(tmp_path: Path) -> None:
    path = tmp_path / "flow.yaml"
    path.write_text(with_own_ids(TEXT), encoding="utf-8")
    assert load(path, GIVEN, OWN) == FLOW
    assert load(str(path), GIVEN, OWN).digest == FLOW.digest


def test_a_dumped_flow_is_read_back_equal_with_the_same_digest() -> None:
    flows: list[Operator[Any, Any]] = [
        FLOW,
        Loop(walked),
        Each(Find(CHUNKS).vary(top_k=(5, 10), alpha=(1, 0.25))),
        Identity[Query]() >> Samples(2),
    ]
    for flow in flows:
        for inputs in ({}, GIVEN):
            second_flow = load(dump(flow, inputs), inputs, OWN)
            assert second_flow == flow
            assert second_flow.digest == flow.digest


def test_a_dumped_flow_reads_well() -> None:
    assert dump(Samples[Query](2) >> Each(Find(CHUNKS, 5)), GIVEN) == with_own_ids(
        "- Samples: {n: 2}\n- Each:\n    arm:\n      own:Find:\n        shelf: {use: chunks}\n        top_k: 5\n"
    )


def test_json_is_read_too() -> None:
    assert read('[{"Samples": {"n": 2}}, {"Each": {"arm": "Identity"}}]') == Samples(2) >> Each(Identity())


def test_an_alias_stands_for_what_it_names() -> None:
    assert read("Branch: [&a {Samples: {n: 2}}, *a]") == Branch(Samples(2), Samples(2))


def test_scalars_mean_what_they_mean_in_yaml_1_2() -> None:
    plain = YamlReader("x").read("[no, yes, 1:30, 2001-01-01, 1_000, 0x1F, ~, null, true, '1', 1, 1.5, 1e3, -.5, '']")
    assert plain == [
        "no",
        "yes",
        "1:30",
        "2001-01-01",
        "1_000",
        "0x1F",
        None,
        None,
        True,
        "1",
        1,
        1.5,
        1000.0,
        -0.5,
        "",
    ]


BOMB = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{new}: &{new} [{', '.join([f'*{old}'] * 10)}]\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)
DEEP = "&a [[[[[[[[[[[[[[[[[[[[[[[[[[[[[[Identity]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]"

BAD = [
    ("", "flow is empty. Write an operator"),
    ("# nothing\n", "flow is empty"),
    (
        "- Identity\n- Samplse: {n: 2}\n",
        "flow, line 2, at 1.Samplse: There is no operator 'Samplse'. Did you mean Sam",
    ),
    (
        "- Identity\n- Samples:\n    N: 2\n",
        "flow, line 3, at 1.Samples.N: Samples has no field 'N'. It has: n. Did you mean n",
    ),
    ("Samples: {n: two}", "line 1, at Samples.n: Here belongs a whole number; there was the text 'two'"),
    ("Samples: {n: 2.0}", "there was the number 2.0. Write 2."),
    ("Samples: {n: .nan}", "nan is not a finite number"),
    ("own:Find: {shelf: {use: chunks}, alpha: .inf}", "alpha: inf is not a finite number"),
    ("own:Find: {shelf: {use: chunks}, alpha: 1e999}", "alpha: inf is not a finite number"),
    ("own:Find: {shelf: {use: chunk}}", "shelf.use: Unknown name 'chunk'. Available: chunks."),
    ("own:Find: {shelf: chunks}", r"shelf: There is no value 'chunks'. Write \{use: chunks\}."),
    ("own:Find: {shelf: own:Self}", r"shelf: There is no value 'own:Self'. Did you mean own:Shelf\?"),
    ("own:Find: {shelf: HNWS}", r"shelf: There is no value 'HNWS'. Write \{use: chunks\}."),
    ("own:Find: {shelf: 5}", "at own:Find.shelf: Here belongs a Shelf; there was the number 5"),
    ("own:Find: {shelf: {use: chunks}, words: [1]}", 'words.0: Here belongs text; .* Write it in quotes: "1"'),
    ("Samples: {n: 0}", "at Samples: n is 0; Samples needs at least 1"),
    ("Samples:", "Samples needs n. Write {Samples: {n: ...}}"),
    ("[]", "A chain needs at least one step"),
    ("3", "Here belongs an operator; there was the number 3. Write {Name: {field: ...}}"),
    ("{Samples: {n: 2}, Identity: }", "there was a mapping with Samples, Identity"),
    ("Branch: [Identity, {Branch: [Identity, {Samples: {m: 1}}]}]", "at Branch.1.Branch.1.Samples.m"),
    ("Samples: {n: 2, n: 3}", "line 1: 'n' stands here a second time; the first is in line 1. Keep one"),
    ("- Samples:\n    n: 2\n    n: 3\n", "line 3: 'n' stands here a second time; the first is in line 2"),
    ("Branch: &a [Identity, *a]", "stands inside of what it refers to: a cycle"),
    ("Branch: [*a]", "refers to nothing"),
    ("Branch: [!!python/object/apply:os.system [id]]", "the tag .*os.system is not allowed"),
    ("!!str Identity", "the tag .* is not allowed"),
    ("Samples: {<<: {n: 2}}", "merge keys"),
    ("? [a]\n: b", "cannot be a key"),
    ("a: &a b\n*a : c", "an alias cannot be a key"),
    ("Identity\n---\nIdentity", "line 2: a second document begins here"),
    ("[Identity", "flow, line 1, column 10: this is not YAML"),
    ("Samples: {n: 2\n", "this is not YAML"),
    ("a: b: c", "this is not YAML"),
    ("Identity\x00", "this is not YAML"),
    ("\tIdentity: {", "this is not YAML"),
    ("acme:Rerank", "no installed package 'acme' offers it"),
    ("os.system", "There is no operator 'os.system'"),
    ("Query: {text: q}", "Query: Here belongs an operator; Query is none"),
    ("n: " + "9" * 400, "a number of 400 characters"),
    (BOMB, f"more than {MAX_NODES:,} values"),
    ("[" * 1000, f"nested deeper than {MAX_DEPTH} levels"),
    (f"[{DEEP}, {'[' * 35}*a{']' * 35}]", r"with \*a this is nested deeper"),
    ("- Identity\n" * (MAX_NODES + 1), "more than"),
    ("x" * 1_000_001, "at most 1,000,000 are read"),
    ("Guard: {body: Identity, fallbck: Identity}", "no field 'fallbck'.* Did you mean fallback"),
    ("own:language: {top_k: 1}", r"no field 'top_k'.* Write \{own:language: \{arguments: \{top_k: ...\}\}\}\."),
    ("language", r"There is no operator 'language'. Did you mean own:language\?$"),
    ("Identify", r"Did you mean Identity\? If it is your own, load"),
    ("- own:language\n- own:walked\n", "walked takes State, not str"),
    (
        "- Identity\n- Loop: {body: own:hopped, until: {StopWhen: {field: missing, at_least: 3}}}\n",
        r"line 2, at 1\.Loop: The judge of Loop: Chain has no field 'missing'. It has: [a-z, ]*\.$",
    ),
    (
        "Route: {router: {PickArm: {default: a}}, arms: {a: own:language}, default: a}",
        r"line 1, at Route: The router of Route: PickArm\(.*\) takes ArmScores, not Query\. Put .*: ByKeywords",
    ),
    ("Route: {router: own:language, arms: {en: Identity}, default: fr}", "The default 'fr' is not an arm of Route"),
]


@check_each(("text", "message"), BAD)
def test_a_file_that_is_wrong_is_refused_with_what_to_write(text: str, message: str) -> None:
    with pytest.raises(FlowFileError, match=with_own_ids(message)):
        read(text)


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FlowFileError, match=r"missing.yaml: No such file"):
        load(tmp_path / "missing.yaml")
    with pytest.raises(FlowFileError, match="No such file"):
        load("missing.yaml")
    with pytest.raises(FlowFileError, match="Is a directory"):
        load(tmp_path)
    (tmp_path / "latin.yaml").write_bytes(b"Samples: {n: 2} # caf\xe9")
    with pytest.raises(FlowFileError, match=r"not UTF-8 \(byte 21\)"):
        load(tmp_path / "latin.yaml")
    (tmp_path / "huge.yaml").write_bytes(b"#" * 1_000_001)
    with pytest.raises(FlowFileError, match="larger than 1,000,000 bytes"):
        load(tmp_path / "huge.yaml")


def test_loading_imports_nothing_that_the_file_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "trap.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    for text in ("trap", "trap:Find", "trap.Find", "{trap: {n: 1}}", "{'trap:Find': {}}"):
        with pytest.raises(FlowFileError):
            load(text)


def test_an_operator_of_an_installed_package_is_found_by_its_prefixed_id(monkeypatch: pytest.MonkeyPatch) -> None:
    points = [
        EntryPoint("Find", f"{__name__}:Find", registry.GROUP),
        EntryPoint("Broken", f"{__name__}:Nothing", registry.GROUP),
    ]
    monkeypatch.setattr(
        "importlib.metadata.entry_points", lambda group: [point for point in points if point.group == group]
    )
    assert load(f"{OWN_PREFIX}:Find: {{shelf: {{use: chunks}}}}", objects=GIVEN) == Find(CHUNKS)
    with pytest.raises(FlowFileError, match="Broken could not be imported"):
        load(f"{OWN_PREFIX}:Broken")


def test_ids_of_own_operators_carry_their_package() -> None:
    assert type_id(Find) == f"{OWN_PREFIX}:Find"
    assert type_id(Samples) == "Samples"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "BM25: {group: {use: embedder}}",
            r"Here belongs a NodeGroup; 'embedder' is of type .* Write \{use: chunks\}\.",
        ),
        ("BM25: {group: HNSW}", r"Here belongs a NodeGroup; HNSW is none\. Write \{use: chunks\}\."),
        ("Dense: {group: {use: chunks}, embedder: HNSW}", r"an Embedder; HNSW is none\. Write \{use: embedder\}\."),
        ("CrossEncoder: {scorer: BM25}", r"Here belongs a Scorer; BM25 is none\. Write .*\bLocalCrossEncoder\b"),
        ("Hops: {graph: {NodeGraph: {group: {use: chunks}, edges: [HNSW]}}}", r"HNSW is none\. Write .*\bInOrder\b"),
    ],
)
def test_what_does_not_belong_there_is_answered_with_what_does(text: str, said: str) -> None:
    inputs = {"chunks": Corpus("nowhere.spolia").group("chunk"), "embedder": HashingEmbedder()}
    with pytest.raises(FlowFileError, match=said):
        load(text, inputs)


@pytest.mark.parametrize("wrong", ["BM25", "{BM25: {group: {use: chunks}}}", "Cut", "MiniLM", "Best"])
def test_what_is_no_transform_is_answered_with_what_a_transform_is_and_which_there_are(wrong: str) -> None:
    with pytest.raises(FlowFileError) as error:
        load_definitions(f"small: {{transform: {wrong}}}", {"chunks": Corpus("nowhere.spolia").group("chunk")})
    assert "Here belongs a transform, an operator from Part to tuple[Piece, ...]; " in str(error.value)
    assert re.search(r" is none\. Write one of: .*\bSentences, .*\bSummary, Whole\.$", str(error.value))
    assert "Get" not in str(error.value)


def test_a_step_that_is_no_transform_is_refused_in_a_definition_too() -> None:
    with pytest.raises(GroupError, match=r"^Cut\(\) takes Ranking, and a transform takes a Part\. Write a splitter"):
        Definition(Cut())  # type: ignore[arg-type]


def test_a_mistake_in_a_file_with_groups_by_name_is_named_where_it_stands() -> None:
    wrong = r"transform: There is no operator 'Sentencez'\. Did you mean Sentences"
    with pytest.raises(FlowFileError, match=f"at small.{wrong}"):
        load_definition("small", "small:\n  transform: Sentencez\n")
    with pytest.raises(FlowFileError, match=f"at {wrong}"):
        load_definition("small", "transform: Sentencez\n")
    with pytest.raises(FlowFileError, match="defines large, not small"):
        load_definition("small", "large:\n  transform: Sentences\n")


def test_a_flow_file_names_others_and_trained_weights_from_where_it_is(tmp_path: Path) -> None:
    weights = TrainedWeights(str(tmp_path / "mine"), "ab")
    flow = LearnedRanker(Corpus("notes.spolia").group(), weights)
    inputs = {"chunks": flow.group}
    (tmp_path / "mine").mkdir()
    mine = tmp_path / "mine" / "flow.yaml"
    mine.write_text(dump(flow, inputs, tmp_path / "mine"))
    assert "folder: ., sha256: ab" in mine.read_text()
    assert load(mine, inputs) == flow
    space = tmp_path / "space.yaml"
    space.write_text("Choice: {options: [{use: mine/flow.yaml}, {BM25: {group: {use: chunks}}}]}")
    choice = load(space, inputs)
    assert choice == Choice(flow, BM25(flow.group))
    (tmp_path / "mine").rename(tmp_path / "other")
    space.write_text("Choice: {options: [{use: other/flow.yaml}, Identity]}")
    assert f"{tmp_path}/other" in repr(load(space, inputs))
    content = inline_files(space)
    (tmp_path / "far").mkdir()
    (tmp_path / "far" / "space.yaml").write_bytes(content)
    assert load(tmp_path / "far" / "space.yaml", inputs) == load(space, inputs)
    (tmp_path / "far" / "plain.yaml").write_text("Identity  # as it is")
    assert inline_files(tmp_path / "far" / "plain.yaml") == b"Identity  # as it is"
    assert load("{use: a.yaml}", {"a.yaml": flow}) == flow  # a name that is given is no file


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "- Identity\n- a.yaml",
            "line 2, at 1: There is no operator 'a.yaml'. For the flow of a file write {use: a.yaml}.",
        ),
        ("- Identity\n- {use: none.yaml}", "none.yaml' is not a file"),
        ("- Identity\n- {use: pipe.yaml}", "pipe.yaml' is not a file"),
        ("- Identity\n- {use: loop.yaml}", "loop.yaml' is not a file"),
        ('- Identity\n- {use: "\\0.yaml"}', ".yaml' is not a file"),
        ('- Identity\n- {use: "\\ud800.yaml"}', ".yaml' is not a file"),
        ("- {use: inner.yaml}", "inner.yaml is named by a file that a flow file names"),
        ("- Identity\n- {use: bad.yaml}", "flow.yaml, line 2, at 1.Cut.top: Cut has no field 'top'"),
        ("[" + ", ".join(f"{{use: {n}.yaml}}" for n in range(MAX_FILES + 1)) + "]", "is more than the 100 files"),
    ],
)
def test_what_is_wrong_with_a_file_that_is_named_is_told(tmp_path: Path, text: str, said: str) -> None:
    for n in range(MAX_FILES + 1):
        (tmp_path / f"{n}.yaml").write_text("Identity")
    os.mkfifo(tmp_path / "pipe.yaml")
    (tmp_path / "loop.yaml").symlink_to("loop.yaml")
    (tmp_path / "inner.yaml").write_text("{use: inner.yaml}")
    (tmp_path / "bad.yaml").write_text("Cut: {top: 3}")
    (tmp_path / "flow.yaml").write_text(text)
    with pytest.raises(FlowFileError, match=re.escape(said)):
        load(tmp_path / "flow.yaml")
