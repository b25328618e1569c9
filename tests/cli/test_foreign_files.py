"""No file of somebody else makes a command send a variable, or texts without a question: each kind of file × each
command that reads it, from the commands and options that there are."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import pytest

from spolia.testing import OpenAIServer
from tests.cli.conftest import COMMANDS, Spolia
from tests.cli.postgres_listener import PostgresListener

pytestmark = [pytest.mark.slow]
VARIABLE, SECRET = "THEIR_KEY", "secret-4711"
TEXT = "The moon causes the tide. Salt is in the sea."


def commands(group: Any = COMMANDS, *parents: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name in group.list_commands(None):
        command = group.get_command(None, name)  # imported when it is asked for
        if hasattr(command, "commands"):
            yield from commands(command, *parents, name)
        else:
            yield (*parents, name), command


@dataclass
class Place:
    """Where somebody else's files are, and the two servers that they name."""

    folder: Path
    web: OpenAIServer
    database: PostgresListener
    store: Path
    """A store without anything foreign."""
    theirs: Path
    """A store whose manifest names the embedder and the variable."""
    texts: Path
    data: Path

    def file(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.write_text(text)
        return path

    def address(self, options: str = f"?password_env={VARIABLE}") -> str:
        return f"postgresql://ann@{self.database.place}/db{options}"

    @property
    def model(self) -> str:
        return f"{{model: m, base_url: '{self.web.url}', api_key_env: {VARIABLE}}}"

    def clear(self) -> None:
        self.web.requests.clear()
        self.database.passwords.clear()
        self.database.connections = 0

    @property
    def arrived(self) -> list[str]:
        return [*self.database.passwords, *(request.headers.get("authorization", "") for request in self.web.requests)]


def profile(at: Place) -> dict[str, object]:
    model = f'url = "{at.web.url}"\nmodel = "m"\napi_key_env = "{VARIABLE}"\n'
    at.file("spolia.toml", f'store = "{at.address()}"\n[llm]\n{model}[embedder]\n{model}[reranker]\n{model}')
    return {"store": None}


def profile_without_a_variable(at: Place) -> dict[str, object]:
    at.file("spolia.toml", f'store = "{at.address("")}"\n')
    return {"store": None}


def profile_of_a_service(at: Place) -> dict[str, object]:
    at.file("spolia.toml", f'store = "{at.address("?service=theirs")}"\n')
    return {"store": None}


def flow_over_a_store(at: Place) -> dict[str, object]:
    text = f"BM25: {{group: {{corpus: {{path: '{at.address()}'}}, name: chunk}}}}\n"
    return dict.fromkeys(("flow", "flows", "space", "what"), at.file("f.yaml", text))


def flow_with_a_model(at: Place) -> dict[str, object]:
    text = f"- BM25: {{group: {{use: chunks}}}}\n- Reader: {{llm: {{ChatModel: {at.model}}}}}\n"
    return dict.fromkeys(("flow", "flows", "space", "what"), at.file("f.yaml", text))


def flow_with_a_group(at: Place) -> dict[str, object]:
    transform = f"{{Summary: {{llm: {{ChatModel: {{model: m, base_url: '{at.web.url}', api_key_env: ''}}}}}}}}"
    group = f"{{corpus: {{use: corpus}}, name: short, definition: {{transform: {transform}, parent: chunk}}}}"
    return dict.fromkeys(("flow", "flows", "space", "what"), at.file("f.yaml", f"BM25: {{group: {group}}}\n"))


def sources(at: Place) -> dict[str, object]:
    url = f"postgresql+psycopg://ann:${{{VARIABLE}}}@{at.database.place}/db"
    return {"sources_file": at.file("s.yaml", f"- SQLRows: {{name: a, url: '{url}', rows: t, key: id, text: body}}\n")}


def sources_without_a_variable(at: Place) -> dict[str, object]:
    url = f"postgresql+psycopg://ann@{at.database.place}/db"
    return {"sources_file": at.file("s.yaml", f"- SQLRows: {{name: a, url: '{url}', rows: t, key: id, text: body}}\n")}


def groups(at: Place) -> dict[str, object]:
    text = f"short: {{transform: {{Summary: {{llm: {{ChatModel: {at.model}}}}}}}, parent: chunk}}\n"
    return dict.fromkeys(("groups", "file"), at.file("g.yaml", text))


def manifest(at: Place) -> dict[str, object]:
    return {"store": at.theirs, "jobs": at.theirs}


def export(at: Place) -> dict[str, object]:
    return {"file": at.theirs.with_suffix(".zip"), "store": at.folder / "new.spolia"}


def baseline(at: Place) -> dict[str, object]:
    plain = {"spolia_baseline": 3, "data": "d", "flow": "bm25", "measures": {"R@5": ""}, "signature": {},
             "documents": {}, "questions": {}}  # fmt: skip
    plain["command"] = {"flow": "bm25", "data": str(at.data), "store": at.address()}
    return {"baseline": at.file("b.json", json.dumps(plain)), "flow": None, "data": None, "store": None}


def card(at: Place) -> dict[str, object]:
    folder = at.folder / "trained"
    folder.mkdir(exist_ok=True)
    fields = {"base_url": at.web.url, "api_key_env": VARIABLE, "store": at.address()}
    (folder / "card.json").write_text(json.dumps({"part": "reranker", "sha256": "0" * 64, **fields}))
    (folder / "flow.yaml").write_text(f"BM25: {{group: {{corpus: {{path: '{at.address()}'}}, name: chunk}}}}\n")
    return dict.fromkeys(("embedder", "reranker", "ranker", "base", "llm"), folder)


def study(at: Place) -> dict[str, object]:
    folder = at.folder / "study"
    folder.mkdir(exist_ok=True)
    fields = {"store": at.address(), "llm": at.web.url, "api_key_env": VARIABLE}
    for name in ("study.json", "result.json", "finished.json", "pilot.json"):
        (folder / name).write_text(json.dumps({**fields, "options": fields, "finalists": [], "reads": []}))
    (folder / "space.yaml").write_text(f"BM25: {{group: {{corpus: {{path: '{at.address()}'}}, name: chunk}}}}\n")
    return {"warm": folder, "out": folder, "save": folder / "study.json"}


def autorag(at: Place) -> dict[str, object]:
    llm = f"llm: openailike, model: m, api_base: '{at.web.url}', api_key: '${{{VARIABLE}}}'"
    text = f"""node_lines:
- node_line_name: line
  nodes:
  - node_type: lexical_retrieval
    top_k: 3
    strategy: {{metrics: [retrieval_recall]}}
    modules: [{{module_type: bm25}}]
  - node_type: prompt_maker
    strategy: {{metrics: [bleu]}}
    modules: [{{module_type: fstring, prompt: 'x {{query}} {{retrieved_contents}}'}}]
  - node_type: generator
    strategy: {{metrics: [rouge]}}
    modules: [{{module_type: openai_llm, {llm}}}]
vectordb:
- {{name: v, db_type: qdrant, url: '{at.web.url}', api_key: '${{{VARIABLE}}}', embedding_model: openai}}
"""
    return {"space": at.file("autorag.yaml", text)}


def journal(at: Place) -> dict[str, object]:
    return {"journal": at.theirs / "runs.db", "run": "last", "replay": 1, "store": None}


def project(at: Place) -> dict[str, object]:
    folder = at.folder / "project"
    folder.mkdir(exist_ok=True)
    (folder / "spolia.toml").write_text(f'store = "{at.address()}"\n')
    (folder / "flow.yaml").write_text(f"Reader: {{llm: {{ChatModel: {at.model}}}}}\n")
    return {"project": folder, "docs": folder, "folder": folder, "sources": folder}


def recipe(at: Place) -> dict[str, object]:
    return {"recipe": at.file("r.yaml", f"- Reader: {{llm: {{ChatModel: {at.model}}}}}\n")}


KINDS: dict[Callable[[Place], dict[str, object]], bool] = {
    profile: True, profile_without_a_variable: True, profile_of_a_service: False, flow_over_a_store: True,
    flow_with_a_model: True, flow_with_a_group: False, sources: True, sources_without_a_variable: True, groups: True,
    manifest: True, export: False, baseline: True, card: False, study: False, autorag: False, journal: True,
    project: False, recipe: False,
}  # fmt: skip
"""By kind of file, whether some command sends the variable once it is allowed: the test could see it then."""

OWN = {
    "known": "Python code of the user", "modules": "Python code of the user", "weights": "numbers",
    "prompts": "texts", "document": "texts",
    "data": "questions and passages", "questions": "questions", "onto": "questions", "source": "questions",
    "files": "compared with their digests",
    "kept_apart": "questions", "labels": "answers and verdicts", "rows": "texts to learn from", "readers": "names",
    "keys": "hashes of keys", "review": "questions", "against": "a flow that the same command names",
    "profile_file": "the caller names it: all in it is the caller's own", "retriever": "a name",
    "otel": "an address that the caller writes", "oidc_issuer": "an address that the caller writes",
    "judge": "an address that the caller writes", "html": "written", "report": "written", "into": "written",
    "originals": "written, or bytes", "out": "written, or a study", "target": "written",
}  # fmt: skip
"""Options with a file or an address that no kind above covers, and why they need none."""
MORE: dict[tuple[str, ...], tuple[str, ...]] = {
    ("gate",): ("--write", "--overlap"),
    ("promote",): ("--to", "candidate"),
}
"""Switches with which a command goes as far as it can."""
NAMING = {"FILE", "DIR", "STORE", "FLOW", "DATA", "SPACE", "URL", "SOURCE", "PROJECT", "FOLDER", "WHAT",
          "LABELS", "MODULE"}  # fmt: skip
"""How options that name a file or an address show their values."""


def noun(param: click.Parameter) -> str:
    return (param.metavar or "").strip("[].")


def test_every_option_that_names_a_file_is_tried_with_a_foreign_one_or_says_why_not(place: Place) -> None:
    tried = {name for kind in KINDS for name in kind(place)} | OWN.keys()
    names = {param.name for _, command in commands() for param in command.params if noun(param) in NAMING}
    assert sorted(names - tried) == []


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spolia: Spolia, texts: Path) -> Iterator[Place]:
    for name in ("SPOLIA_ALLOW_ENV", "OPENAI_API_KEY", "PGPASSWORD", "PGSERVICE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(VARIABLE, SECRET)
    monkeypatch.setenv("SPOLIA_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "theirs"
    folder.mkdir()
    monkeypatch.chdir(folder)
    with OpenAIServer() as web, PostgresListener() as database:
        stores = tmp_path / "own.spolia", tmp_path / "their.spolia"
        foreign_place = Place(folder, web, database, *stores, texts, questions_on(tmp_path / "data"))
        assert spolia("index", texts, "--store", foreign_place.store, "--no-vectors").code == 0
        allowed = ("--allow-env", VARIABLE)
        server = ("--embedder", web.url, "--embed-model", "m", "--profile-file", "own.toml")
        foreign_place.file("own.toml", f'[embedder]\nurl = "{web.url}"\nmodel = "m"\napi_key_env = "{VARIABLE}"\n')
        assert spolia("index", texts, "--store", foreign_place.theirs, *server).code == 0
        flow = flow_with_a_model(foreign_place)["flow"]
        assert spolia(
            "ask", "tides?", "--store", foreign_place.theirs, "--flow", flow, "--keep-values", *allowed
        ).code in (0, 6)
        assert spolia("export", foreign_place.theirs, foreign_place.theirs.with_suffix(".zip")).code == 0
        for name in ("own.toml", "f.yaml"):
            (folder / name).unlink()
        web.requests.clear()
        yield foreign_place


def questions_on(folder: Path) -> Path:
    """A data set whose passage is the document of the stores."""
    folder.mkdir()
    (folder / "corpus.jsonl").write_text(json.dumps({"id": "tides.txt", "title": "", "text": TEXT}))
    rows = [
        {
            "id": f"q{number}",
            "question": f"What causes tide {number}?",
            "gold_ids": ["tides.txt"],
            "answers": ["the moon"],
        }
        for number in range(12)
    ]
    (folder / "questions.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return folder


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("texts")
    (folder / "tides.txt").write_text(TEXT)
    return folder


def words(name: tuple[str, ...], command: Any, at: Place, inputs: dict[str, object]) -> list[object]:
    """A command line with these values, and with values of the caller's own where a command needs or wants some."""
    new, search = at.folder / "new", "dense" if inputs.get("store") == at.theirs else "bm25"
    usual: dict[str, object] = {
        "QUESTION": "What causes the tide?", "FLOW": search, "SPACE": "bm25", "WHAT": "naive",
        "DATA": at.data, "LABELS": at.data / "questions.jsonl",
        "SOURCE": at.folder, "STORE": at.store,
        "DIR": new, "FILE": new, "PROJECT": new, "FOLDER": new, "TARGET": new, "URI": "tides.txt", "LIST": "EM",
        "NAME": {"add": "short", "drop": "short"}.get(name[-1], "chunk"), "KIND": "reward",
        "PART": "reader",
    }  # fmt: skip
    usual_values = {"store": at.store, "question": "What causes the tide?", "host": "256.0.0.1",
              "wait": 0, "sources": at.texts, "data": at.data, "retriever": search,
              "budget_calls": 3}  # fmt: skip
    line: list[object] = []
    for param in command.params:
        if param.name in inputs and (inputs[param.name] is None or noun(param) not in NAMING | {"RUN", "STEP"}):
            continue
        is_option = isinstance(param, click.Option)
        is_wanted = param.required or (
            param.name == "flow" and name in ((("gate",), ("promote",))) and "baseline" not in inputs
        )
        value = inputs.get(param.name, usual_values.get(param.name, usual[noun(param)] if is_wanted else None))
        if value is not None:
            line += [param.opts[0], value] if is_option else [value]
    return [*name, *line, *MORE.get(name, ())]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_no_command_sends_what_a_foreign_file_names(
    kind: Callable[[Place], dict[str, object]], place: Place, spolia: Spolia, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "without_a_variable" in kind.__name__:  # the database's library reads its own
        monkeypatch.setenv("PGPASSWORD", SECRET)
    file = kind(place)
    reading = [
        (name, command)
        for name, command in commands()
        if {param.name for param in command.params}
        & (file.keys() if "profile" not in kind.__name__ else {"profile_file"})
    ]
    assert reading
    arrivals = {}
    for name, command in reading:
        spolia(*words(name, command, place, file))
        if place.arrived or place.database.connections:
            arrivals[" ".join(name)] = place.arrived
        place.clear()
    assert arrivals == {}
    if KINDS[kind]:
        monkeypatch.setenv("SPOLIA_ALLOW_ENV", f"{VARIABLE},PGPASSWORD,PGSERVICE")
        for name, command in reading:
            spolia(*words(name, command, place, file))
        assert any(SECRET in header for header in place.arrived)
