"""Feedback becomes questions, questions tune and gate a flow, and the flow is promoted under a running server."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("uvicorn", reason="the extra `server` is not installed")

import httpx

from spolia.evaluation.data.dataset import part_of
from spolia.testing import OpenAIServer, ServedReply
from spolia.training.rows import read_rows
from tests.cli.conftest import Spolia, spolia  # noqa: F401
from tests.server.conftest import Served, until

pytestmark = pytest.mark.slow

SEARCH = "- BM25: {group: {use: chunks}, top_k: 5}\n"
FORGETFUL = SEARCH + "- KeywordFilter: {excluded: [moon]}\n"
SPACE = SEARCH + "- Choice: {options: [{KeywordFilter: {excluded: [moon]}}, Identity], name: filter}\n"
QUESTIONS = [f"What causes the tide{at}?" for at in ("", *(f" of harbour {n}" for n in range(11)))]


def alias_of(client: httpx.Client, name: str = "production") -> Any:
    flows = {flow["name"]: flow.get("alias") for flow in client.get("/v1/flows").json()["flows"]}
    return flows.get(name)


def test_the_whole_circle(served: Served, spolia: Spolia, tmp_path: Path) -> None:  # noqa: F811
    folder, store = tmp_path / "questions", ("--store", served.store)
    for name, text in {"forgetful": FORGETFUL, "space": SPACE}.items():
        (tmp_path / f"{name}.yaml").write_text(text)
    base, better = tmp_path / "base.json", tmp_path / "tuned" / "best.yaml"
    try:
        (tmp_path / "broken.yaml").write_text("- Nope: {}")
        broken = spolia("promote", tmp_path / "broken.yaml", "--to", "candidate", *store)
        assert (broken.code, str(served.store / "flows") in broken.err) == (2, False)  # it names the user's file
        for _ in range(2):
            assert spolia("promote", tmp_path / "forgetful.yaml", "--to", "candidate", *store).code == 0
        assert spolia("promote", "--back", "--to", "candidate", *store).code == 2  # it was promoted twice, and is one
        with served.client("bob") as bob:
            until(lambda: alias_of(bob, "candidate"))
            for question in QUESTIONS:
                reply = bob.post("/v1/answer", json={"question": question, "flow": "candidate"}).json()
                assert (reply["stop_reason"], reply["flow"]) == ("abstained", "candidate")
                wrong = {"run": reply["run"], "thumb": "down", "answer": "the pull of the moon", "question": question}
                assert bob.post("/v1/feedback", json=wrong).status_code == 200
            made = spolia("questions", *store, "--feedback", "--json", "-o", folder)
            assert made.json["questions"] == len(QUESTIONS), made.out
            (preferred, *further) = read_rows(folder / "preferences.jsonl", "dpo")
            assert len(further) == len(QUESTIONS) - 1
            assert preferred["chosen"][0]["content"] == "the pull of the moon [1]"
            assert "pull of the moon" in preferred["prompt"][-1]["content"]
            review = folder / "review.csv"
            review.write_text(review.read_text().replace(QUESTIONS[-1], "What pulls the tide?"))
            assert spolia("questions", "--review", review, "-o", folder, "--json").json["changed"] == 1
            rows = [json.loads(line) for line in (folder / "questions.jsonl").read_text().splitlines()]
            assert {part_of(row["id"]) for row in rows} <= {"tune", "select"}

            gate = ("--data", folder, "--baseline", base, *store)
            write = ("gate", tmp_path / "forgetful.yaml", *gate, "--write", "--measures", "R@1,nDCG@10")
            assert spolia(*write).code == 0
            tuned = ("tune", tmp_path / "space.yaml", "--data", folder, *store, "-o", better.parent, "--json")
            assert spolia(*tuned, "--objective", "nDCG@10").code == 0
            promoted = spolia("promote", better, *gate, "--json").json
            first, verdict = promoted["promoted"], promoted["gate"]
            assert (verdict["passed"], verdict["flow"], verdict["n"] > 0) == (True, str(better), True)
            until(lambda: alias_of(bob))
            assert alias_of(bob) == {name: first[name] for name in ("flow", "sha256", "promoted")}
            assert bob.get("/v1/models/production").json()["spolia"] == alias_of(bob)
            copy = served.store / "flows" / first["sha256"][:16] / "best.yaml"
            assert copy.read_bytes() == better.read_bytes()  # what was tuned and gated is what is served
            answer = bob.post("/v1/answer", json={"question": QUESTIONS[0]}).json()
            assert (answer["flow"], answer["stop_reason"] != "abstained") == ("production", True)

            runs = [bob.post("/v1/answer", json={"question": f"{item} "}).json()["run"] for item in QUESTIONS[:4]]
            right = {"run": runs[0], "thumb": "up", "answer": "the pull of the moon"}
            assert bob.post("/v1/feedback", json=right).status_code == 200
            more = " ".join(spolia("questions", *store, "--feedback", "-o", tmp_path / "more").err.split())
            assert "1 corrected answer without a question: no row can be made." in more
            assert "serve with --keep-values" in more
            report = ("monitor", *store, "--json")
            until(lambda: (spolia(*report).json["candidate"] or {"n": 0})["n"] >= 4)
            comparison = spolia(*report).json
            then, now, change = comparison["candidate"]["measures"]["abstained"]
            assert (comparison["flow"], then["mean"], now["mean"]) == ("production", 0, 1)
            assert change["low"] > 0
            assert comparison["candidate"]["overlap"]["mean"] == 0  # the filter drops what production finds
            assert [item and item["mean"] for item in comparison["candidate"]["measures"]["F1"]][1] == 0
            assert comparison["thumbs_up"]["candidate"]["mean"] < comparison["thumbs_up"]["production"]["mean"]
            unanswered = spolia("monitor", *store, "--flow", "candidate", "--json").json["topics"]
            assert {item["word"] for item in unanswered} & {"tide", "what", "the", "of"} == {"tide"}
            page = spolia("monitor", *store).out
            assert ("inf" in page, "tokens" in page, "abstained" in page) == (False, False, True)

            assert spolia(*write[:1], better, *write[2:]).code == 0  # the better flow is the baseline now
            refused = spolia("promote", "candidate", *gate, "--json")
            assert (refused.code, refused.json["promoted"], refused.json["gate"]["flow"]) == (1, None, "forgetful")
            assert alias_of(bob) == {name: first[name] for name in ("flow", "sha256", "promoted")}
            (tmp_path / "idle.yaml").write_text(SEARCH + "- Reader: {llm: {use: llm}}\n")
            with OpenAIServer(ServedReply(status=400)) as silent:
                idle = spolia("promote", tmp_path / "idle.yaml", *gate, "--llm", silent.url, "--model", "m")
            assert (idle.code, f"{tmp_path / 'idle.yaml'} " in idle.err) == (5, True)
            assert str(served.store / "flows") not in idle.err + idle.out
            words = spolia("promote", "bm25", *gate).out
            assert "bm25 passes on" in words
            assert re.search(r"R@1 \d+\.\d → \d+\.\d, nDCG@10", words)
            until(lambda: alias_of(bob)["flow"] == "bm25")
            assert spolia("promote", "--back", *store).code == 0
            until(lambda: alias_of(bob)["flow"] == "best")
            assert spolia("promote", "--back", *store).code == 2
            copy.write_text(FORGETFUL)  # a changed copy is not served
            assert spolia("promote", better, *gate).code == 0
            assert copy.read_bytes() == better.read_bytes()
    finally:
        (served.store / "aliases.json").unlink(missing_ok=True)
    with served.client("bob") as bob:
        until(lambda: not alias_of(bob))
