"""`spolia questions`: a data set of a store's documents, a review by people, an estimate."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from spolia.cli.commands.questions import shares
from spolia.errors import QueryError
from spolia.evaluation import DataSet
from spolia.testing import OpenAIServer, ServedReply
from spolia.testing.server import ReceivedRequest
from spolia.types import Message, Prompt
from tests.evaluation.creation import documents

from .conftest import Spolia


class Scripted(OpenAIServer):
    """Replies as the scripted model does."""

    def next_reply(self, request: ReceivedRequest) -> ServedReply:
        super().next_reply(request)
        messages = tuple(Message(message["role"], message["content"]) for message in request.body["messages"])
        return ServedReply(documents.model().generate(Prompt(messages)).text)


def question_command(server: OpenAIServer, *, n: int = 4, out: str = "data") -> tuple[str, ...]:
    """The command that makes so many questions with the server's model."""
    store = ("--store", "notes.spolia", "--llm", server.url, "--model", "m")
    return ("questions", *store, "--n", str(n), "-o", out)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    monkeypatch.setenv("SPOLIA_CACHE", str(tmp_path / "cache"))
    documents.store(tmp_path)
    return tmp_path


@pytest.mark.slow
def test_a_data_set_is_made_reviewed_and_measured(spolia: Spolia, place: Path) -> None:
    with Scripted() as server:
        command = question_command(server)
        ran = spolia(*command, "--json")
        assert ran.code == 5, ran.err  # one of four could be made
        assert (ran.json["questions"], ran.json["spent"]["calls"]) == (1, 10)
        assert ran.json["dropped"]["KeepAnswered"] == {"its passages do not answer it": 1}
        assert ran.json["missing"] == {"factoid": 3}
        second_result = spolia(*question_command(server, out="again"), "--json")
        assert second_result.json["spent"]["calls"] == 0
        assert len(server.requests) == 10
    assert (place / "data/questions.jsonl").read_bytes() == (place / "again/questions.jsonl").read_bytes()
    dropped_rows = [json.loads(line) for line in (place / "data/dropped.jsonl").read_text().splitlines()]
    assert {row["dropped_by"] for row in dropped_rows} == {"KeepAnswered", "KeepSelfContained"}

    measured = spolia("eval", "bm25", "--data", "data", "--store", "notes.spolia", "--measures", "R@1", "--json")
    assert measured.code == 0, measured.err
    assert measured.json["measures"]["R@1"]["mean"] == 1.0
    table = spolia(
        "eval", "bm25", "--data", "data/review.csv", "--store", "notes.spolia", "--measures", "R@1", "--json"
    )
    assert table.json["measures"]["R@1"]["mean"] == 1.0, table.err

    review = place / "data/review.csv"
    with review.open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    rows[0] |= {"accept": "yes", "question": "In which year was Ann Bellson born?", "answers": "1871 | in 1871"}
    write(review, rows)
    ran = spolia("questions", "-o", "data", "--review", review, "--json")
    assert {name: ran.json[name] for name in ("accepted", "changed", "rejected")} == {
        "accepted": 1, "changed": 1, "rejected": 0,
    }  # fmt: skip
    (item,) = DataSet("data").items(stored=True)
    assert (item.question, item.answers) == ("In which year was Ann Bellson born?", ("1871", "in 1871"))
    assert item.quotes

    write(review, [rows[0] | {"accept": "no"}])
    assert spolia("questions", "-o", "data", "--review", review, "--json").json["rejected"] == 1
    assert not list(DataSet("data/review.csv").items(stored=True))
    write(review, rows)  # a review may be changed and taken over again
    assert spolia("questions", "-o", "data", "--review", review, "--json").json["questions"] == 1


def write(path: Path, rows: list[dict[str, str]]) -> None:
    with path.open("w", encoding="utf-8-sig", newline="") as file:
        table = csv.DictWriter(file, list(rows[0]))
        table.writeheader()
        table.writerows(rows)


@pytest.mark.slow
def test_an_estimate_asks_and_writes_nothing(spolia: Spolia, place: Path) -> None:
    with Scripted() as server:
        ran = spolia(*question_command(server), "--types", "factoid=10,unanswerable=5", "--estimate", "--json")
        assert ran.code == 0, ran.err
        assert not server.requests
    assert {name: row["calls"] for name, row in ran.json["estimate"].items()} == {"factoid": 40, "unanswerable": 15}
    assert not (place / "data").exists()


RECIPE = """
- SamplePassages: {group: {use: chunks}, type: factoid}
- Each:
    arm:
    - WriteQuestion: {llm: {use: llm}}
    - WriteAnswer: {llm: {use: llm}}
    - KeepAnswered
    - KeepQuoted
- DropNearDuplicates: {at_least: 0.7}
"""


@pytest.mark.slow
def test_a_recipe_of_ones_own_is_a_flow_file(spolia: Spolia, place: Path) -> None:
    (place / "recipe.yaml").write_text(RECIPE)
    (place / "other.yaml").write_text("- BM25: {group: {use: chunks}}\n")
    with Scripted() as server:
        ran = spolia(*question_command(server, n=1), "--recipe", "recipe.yaml", "--json")
        assert (ran.code, ran.json["questions"]) == (0, 1), ran.err
        assert "KeepSelfContained" not in ran.json["dropped"]
        assert str(dict(next(iter(DataSet("data").items(stored=True))).meta)["filters"]).count("Keep") == 2
        refused = spolia(*question_command(server, out="more"), "--recipe", "other.yaml")
    assert refused.code == 2
    assert "Write a sampler" in refused.err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("--store", "notes.spolia"), "--llm URL"),
        ((), "--store STORE"),
        (("--store", "notes.spolia", "--llm", "http://127.0.0.1:9/v1", "--model", "m", "--types", "riddle"), "factoid"),
        (("--review", "none.csv"), "There is no data"),
    ],
)
def test_wrong_usage_says_what_to_write(spolia: Spolia, place: Path, args: tuple[str, ...], says: str) -> None:
    ran = spolia("questions", "-o", "data", *args)
    assert ran.code == 2
    assert says in ran.err


@pytest.mark.parametrize("types", ["", "factoid,factoid", "factoid=3,concept", "factoid=0"])
def test_types_without_a_meaning_are_refused(types: str) -> None:
    with pytest.raises(QueryError, match="--types"):
        shares(types, 10)


@pytest.mark.slow
def test_a_larger_budget_goes_on_in_the_same_folder_until_people_have_reviewed_it(spolia: Spolia, place: Path) -> None:
    with Scripted() as server:
        command = question_command(server)
        ran = spolia(*command, "--budget-calls", 9, "--json")
        assert (ran.json["stopped"], ran.json["spent"]["calls"]) == ({"factoid": "budget"}, 9)
        ran = spolia(*command, "--json")
        assert (ran.json["questions"], ran.json["spent"]["calls"]) == (1, 1)
        assert spolia(*command, "--json").json["spent"]["calls"] == 0
        review = place / "data/review.csv"
        review.write_text(review.read_text("utf-8-sig").replace('"","When', '"yes","When'), "utf-8-sig")
        previous_content = review.read_bytes()
        refused = spolia(*command)
    assert refused.code == 2
    assert "was reviewed" in refused.err
    assert review.read_bytes() == previous_content


@pytest.mark.slow
@pytest.mark.parametrize(
    "reply", [ServedReply("the prompt is too long", status=400), ServedReply("I'm sorry, I cannot.")]
)
def test_a_model_whose_replies_are_of_no_use_is_not_asked_for_every_passage(
    spolia: Spolia, place: Path, reply: ServedReply
) -> None:
    with OpenAIServer(reply) as server:
        ran = spolia(*question_command(server, n=100), "--json")
        assert (ran.code, ran.json["questions"], ran.json["stopped"]) == (4, 0, {"factoid": "model"})
        assert len(server.requests) <= 8  # of four passages, each asked again once at most
    assert not (place / "data/questions.jsonl").exists()
    assert {row["dropped_by"] for row in map(json.loads, (place / "data/dropped.jsonl").open())} == {"WriteQuestion"}


class Slow(Scripted):
    """Takes a moment for each reply, so that a command can be killed while it waits."""

    def next_reply(self, request: ReceivedRequest) -> ServedReply:
        time.sleep(0.1)
        return super().next_reply(request)


@pytest.mark.slow
def test_a_killed_run_goes_on_and_asks_only_what_was_in_flight_again(spolia: Spolia, place: Path) -> None:
    with Slow() as server:
        command = question_command(server)
        whole = [sys.executable, "-m", "spolia", *command]
        with subprocess.Popen(whole, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as killed:
            deadline = time.monotonic() + 60
            while len(server.requests) < 6 and time.monotonic() < deadline:
                time.sleep(0.01)
            killed.kill()
        assert not (place / "data").exists()
        asked_before = len(server.requests)
        assert 6 <= asked_before < 10
        ran = spolia(*command, "--json")
        assert ran.json["questions"] == 1
        prompts = [json.dumps(request.body["messages"]) for request in server.requests]
    assert len(set(prompts)) == 10
    assert len(prompts) - 10 <= 4  # one for each of the four rows at most
