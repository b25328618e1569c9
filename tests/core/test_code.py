"""What a function does has one hash everywhere, and another one as soon as anything that it refers to is changed."""

from __future__ import annotations

import importlib
import linecache
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from spolia.core.fingerprint.definition import definition_digest
from spolia.core.fingerprint.digest import code_digest
from spolia.core.operator import Operator
from spolia.errors import ManifestMismatch
from spolia.indexing.sync.sync import sync
from spolia.post_retrieval.selection import Cut, Threshold
from spolia.stores.corpus import Corpus
from spolia.stores.definition import Definition, Part, Pieces
from spolia.stores.manifest import built_in, signature

MAIN = '''
import json
import re
from enum import Enum
from functools import cache, partial

import quarry.words
from quarry import words
from quarry.words import Kind, Word, marks as named_marks

from spolia.core.function import step
from spolia.indexing.transforms.function import transform

LIMIT = 3
STOP = {"the", "a", "of"}
WEIGHTS = {"red": 1.0, "old": [2, 3]}
PATTERN = re.compile(r"[a-z]+")
SEEN = {}
asked = []
count = 0


def halved(size, by=2):
    """Half of it."""
    return size // by


@cache
def kept(word):
    return word.strip(".")


def outer(mark):
    def inner(text):
        return text + mark
    return inner


marked = outer("!")
short = partial(halved, by=3)


@step
def again(text: str) -> str:
    return again(text[1:]) if text.startswith(" ") else text.rstrip()


@transform
def cut(text, least=1):
    """Words of it."""
    global count
    count += 1
    SEEN[text] = count
    asked.append(text)
    from quarry.late import joined
    found = [kept(word) for word in PATTERN.findall(again(text)) if word not in STOP]
    long = [Word(word, WEIGHTS.get(word, Kind.COMMON)) for word in found if len(word) > halved(LIMIT) + short(3)]
    return joined([words.spelled(word.text) + quarry.words.END for word in long]) + marked(json.dumps(named_marks()))
'''
WORDS = """
from dataclasses import dataclass
from enum import Enum

END = "."
BASE = 2


class Kind(Enum):
    COMMON = 0
    RARE = 5


class Base:
    def size(self):
        return BASE


@dataclass
class Word(Base):
    text: str
    weight: object = END

    @property
    def long(self):
        return len(self.text) > 3


def marks():
    return [deeper()]


def deeper():
    return "-"


def spelled(word):
    return word


def unused():
    return 1
"""
LATE = "def joined(words):\n    return ' '.join(words)\n"
SIGNED = """
from spolia.core.function import step
from spolia.indexing.transforms.function import transform

LEAST = 3


def long_enough(word):
    return len(word) >= LEAST


@transform
def words(text, *, most=10):
    return [word for word in text.split() if long_enough(word)][:most]


@step
def twice(pieces):
    return (*pieces, *pieces)
"""
FILES = {"main.py": MAIN, "words.py": WORDS, "late.py": LATE, "__init__.py": ""}
Quarry = Callable[..., Operator[Part, Pieces]]


@pytest.fixture
def quarry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Quarry]:
    """Writes a package of a user's and imports it as a new process would."""
    place = tmp_path / "code" / "quarry"
    place.mkdir(parents=True)
    monkeypatch.syspath_prepend(str(place.parent))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def forget() -> None:
        for name in [name for name in sys.modules if name.partition(".")[0] == "quarry"]:
            del sys.modules[name]
        importlib.invalidate_caches()
        linecache.clearcache()

    def write_modules(changes: Mapping[str, tuple[str, str]] = {}) -> Operator[Part, Pieces]:
        for name, text in FILES.items():
            old, new = changes.get(name, ("", ""))
            assert old in text
            (place / name).write_text(text.replace(old, new) if old else text)
        forget()
        flow: Operator[Part, Pieces] = importlib.import_module("quarry.main").cut
        return flow

    yield write_modules
    forget()


def test_groups_of_stores_of_before_are_recognised(
    quarry: Quarry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Signatures as the release of before wrote them down."""
    (tmp_path / "quarrysig.py").write_text(SIGNED)
    monkeypatch.syspath_prepend(str(tmp_path))
    own, fine = importlib.import_module("quarrysig"), built_in("fine")
    assert fine is not None
    transforms = [fine.transform, own.words, own.words.but(most=5), own.words >> own.twice, fine.transform >> own.twice]
    assert [signature(Definition(transform), {}) for transform in transforms] == [
        "e30cfe34d796d608826ed4731cef05d4",
        "6d8127aa58a221696cda02313c1a871e",
        "b61f87cd5b5289d8a08098e0727ae0ba",
        "7500b5df6a3fa4048e8abedb29aad199",
        "c851cfe9b6307e427fccc9c25a265c61",
    ]


def test_a_class_of_spolia_and_of_a_user_have_one_answer_whatever_is_said_beside_the_code(quarry: Quarry) -> None:
    assert code_digest(Cut) == definition_digest(Cut) != definition_digest(Threshold)
    quarry()
    digest_before = code_digest(sys.modules["quarry.words"].Word)
    quarry({"words.py": ("    text: str\n", "    text: str  # of a page\n\n")})
    assert code_digest(sys.modules["quarry.words"].Word) == digest_before
    quarry({"words.py": ("> 3", "> 4")})
    assert code_digest(sys.modules["quarry.words"].Word) != digest_before


CHANGES = [
    ("main.py", "LIMIT = 3", "LIMIT = 4"),
    ("main.py", '"of"', '"on"'),
    ("main.py", "[2, 3]", "[2, 4]"),
    ("main.py", "[a-z]+", "[a-y]+"),
    ("main.py", "size // by", "size / by"),
    ("main.py", "by=2", "by=4"),
    ("main.py", "by=3", "by=4"),
    ("main.py", 'strip(".")', 'strip(",")'),
    ("main.py", 'outer("!")', 'outer("?")'),
    ("main.py", "text + mark", "mark + text"),
    ("main.py", "least=1", "least=2"),
    ("main.py", "text.rstrip()", "text.lstrip()"),
    ("main.py", "found = [kept", "found = [str.upper(word) and kept"),
    ("words.py", 'END = "."', 'END = ";"'),
    ("words.py", "BASE = 2", "BASE = 3"),
    ("words.py", "COMMON = 0", "COMMON = 1"),
    ("words.py", "weight: object = END", "weight: object = 0"),
    ("words.py", "> 3", "> 4"),
    ("words.py", 'return "-"', 'return "+"'),
    ("words.py", "    return word\n", "    return word[:1]\n"),
    ("late.py", "' '.join", "'_'.join"),
]
SAME = [
    ("main.py", "LIMIT = 3", "LIMIT = 3  # so many"),
    ("main.py", '"""Words of it."""', '"""Its words."""'),
    ("main.py", '"""Half of it."""', "# half"),
    ("main.py", "count = 0", "count = 7"),
    ("main.py", "SEEN = {}", "SEEN = {1: 2}"),
    ("main.py", "asked = []", "asked = ['x']"),
    ("main.py", '{"the", "a", "of"}', '{"of", "the", "a"}'),
    ("words.py", "return 1", "return 2"),
    ("words.py", "RARE = 5", "RARE = 5\n"),
]


@pytest.mark.parametrize(("file", "old", "new"), CHANGES)
def test_a_change_of_what_the_function_refers_to_is_seen(quarry: Quarry, file: str, old: str, new: str) -> None:
    digest_before, digest_after = quarry().digest, quarry({file: (old, new)}).digest
    assert digest_before != digest_after


@pytest.mark.parametrize(("file", "old", "new"), SAME)
def test_what_makes_no_difference_is_not(quarry: Quarry, file: str, old: str, new: str) -> None:
    assert quarry().digest == quarry({file: (old, new)}).digest


def test_running_it_changes_nothing(quarry: Quarry) -> None:
    digest_before = quarry().digest
    quarry_flow = quarry()
    main = sys.modules["quarry.main"]
    main.SEEN["x"] = 1
    vars(main)["count"] = 9
    main.asked.append("x")
    main.kept("word")
    assert quarry_flow.digest == digest_before


DIGEST = "from quarry.main import cut, again; print(cut.digest.hex(), again.digest.hex())"


@pytest.mark.slow
def test_every_process_gets_the_same(quarry: Quarry, tmp_path: Path) -> None:
    here = quarry()
    printed = set()
    for seed in ("1", "2"):
        paths = os.pathsep.join([str(tmp_path / "code"), *sys.path])
        environment = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": paths}
        printed.add(subprocess.check_output([sys.executable, "-c", DIGEST], env=environment, text=True))
    second_flow = sys.modules["quarry.main"].again
    assert printed == {f"{here.digest.hex()} {second_flow.digest.hex()}\n"}


def test_without_a_source_the_compiled_code_is_compared() -> None:
    from spolia.core.function import step

    def digest_of_body(body: str) -> bytes:
        names: dict[str, Any] = {"__name__": "nowhere"}
        exec(f"def f(text):\n    return {body}", names)
        flow: Operator[str, str] = step(names["f"])
        return flow.digest

    assert digest_of_body("text + '1'") == digest_of_body("text + '1'") != digest_of_body("text + '2'")
    assert digest_of_body("text in {'a', 'b'}") != digest_of_body("text in {'a', 'c'}")


@pytest.mark.slow
def test_a_group_is_not_gone_on_with_when_a_helper_has_changed(quarry: Quarry, tmp_path: Path) -> None:
    folder, corpus = tmp_path / "docs", Corpus(str(tmp_path / "notes.spolia"))
    folder.mkdir()
    (folder / "a.txt").write_text("red stones of old roads")
    group = corpus.group("words", Definition(quarry()))
    sync(folder, corpus, groups=[group])
    (folder / "b.txt").write_text("whelks")
    assert sync(folder, corpus, operators=[quarry()]).added == 1
    changed = quarry({"words.py": ('return "-"', 'return "+"')})
    with pytest.raises(ManifestMismatch, match="have changed"):
        sync(folder, Corpus(corpus.path), operators=[changed])
    with pytest.raises(ManifestMismatch):
        corpus.group("words", Definition(changed)).snapshot()


@pytest.mark.slow
def test_what_cannot_be_looked_through_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    circle: list[object] = []
    circle.append(circle)
    large = list(range(1_000_000))

    def looks(text: str) -> str:
        return f"{text}{circle}{large}"

    assert code_digest(looks) == code_digest(looks)
