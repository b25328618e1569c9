"""What six steps of CoRAG cost beyond model and searches: CPU time of a question, on real questions and passages.

    python benchmarks/corag.py [--questions N] [--out FILE]

Data: `SPOLIA_DATASETS`, else `../shared/datasets` beside the checkout: questions of MuSiQue and HotpotQA, each with the
five passages that BM25 finds for it. The model replies at once, with another sub-question at each step; the searches
give the same five passages each time. So what is left is the flow: prompts, replies, checks and accounts. The CPU time
of making a reply is subtracted, as measured by calling the model with the prompts of the question.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path, PurePosixPath
from statistics import median, quantiles
from typing import Any, ClassVar

from results import publish
from retrieval import DATA

from spolia.core.function import step
from spolia.core.operator import Operator
from spolia.evaluation.data.dataset import DataSet
from spolia.evaluation.data.passage_store import index_passages
from spolia.flow_files.built_in_flows import BUILT_IN
from spolia.flows.corag import corag
from spolia.journal import Runs
from spolia.models.prompting.stand_in_models import ScriptedModel
from spolia.run import Run
from spolia.types import Answer, Prompt, Query, Ranking

SETS = ("musique", "hotpotqa")
STEPS = 6
FOUND: dict[str, Ranking] = {}
"""By question; that of the question which is asked under `NOW`, too."""
NOW = ""


@step
def found_before(query: Query) -> Ranking:
    """The passages of the question, whatever sub-question is searched."""
    return FOUND[NOW].but(query=query)


@dataclass(frozen=True)
class AtOnce(ScriptedModel):
    """Replies at once: another sub-question at each step, a short answer, a short final answer."""

    replies: tuple[str, ...] = ()

    waits: ClassVar[bool] = False

    def _reply(self, prompt: Prompt) -> str:
        role = PurePosixPath(prompt.role).name
        if role.startswith("corag_next"):
            return f"Which place does step {prompt.text.count('Q: ')} lead to?"
        return "The ferry to Aarhus." if role.startswith("corag_reply") else "Aarhus [1]."


class Timed(AtOnce):
    """Adds up what replying costs."""

    spent: ClassVar[float] = 0.0

    def _reply(self, prompt: Prompt) -> str:
        began = time.process_time()
        reply = super()._reply(prompt)
        Timed.spent += time.process_time() - began
        return reply


def milliseconds(flow: Operator[Query, Answer], questions: list[str], run: Callable[[], Run]) -> list[float]:
    """CPU time of each question, one run for all; the least of three rounds."""
    rounds: list[list[float]] = []
    for _ in range(3):
        costs = []
        with run() as opened_run:
            for question in questions:
                FOUND[NOW] = FOUND[question]
                Timed.spent, began = 0.0, time.process_time()
                with opened_run.lane() as lane:
                    answer = flow(Query(question))
                costs.append(1000 * (time.process_time() - began - Timed.spent))
                assert (lane.usage.calls, answer.stop_reason) == (2 * STEPS + 1, "cap")
        rounds.append(costs)
    return [min(times) for times in zip(*rounds, strict=True)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--questions", type=int, default=150, help="of each set")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    for name in SETS:
        data = DataSet(str(DATA / name))
        search = BUILT_IN["bm25"](index_passages(data), None, None, 5)
        FOUND.update((item.question, search(Query(item.question))) for item in islice(data.items(), options.questions))
    flow, questions = corag(Timed(), found_before, steps=STEPS), list(FOUND)
    with tempfile.TemporaryDirectory() as folder:
        runs, keeping = Runs(Path(folder) / "runs.db"), Runs(Path(folder) / "values.db", values=True)
        ways: dict[str, Callable[[], Run]] = {
            "journal off": Run,
            "journal on": lambda: Run(journal=runs.journal),
            "journal on, inputs and outputs kept": lambda: Run(journal=keeping.journal),
        }
        costs = {way: milliseconds(flow, questions, run) for way, run in ways.items()}
        runs.close()
        keeping.close()
    result: dict[str, Any] = {
        "unit": "CPU ms of a question: six sub-questions, six answers, a final answer, seven searches",
        "questions": len(questions),
        "words of passages shown, of a search": median(
            sum(len(t.split()) for t in ranking.texts) for ranking in FOUND.values()
        ),
        "cpu_ms": {
            way: {"median": round(median(times), 3), "p95": round(quantiles(times, n=20)[-1], 3)}
            for way, times in costs.items()
        },
    }
    publish("corag", result, options.out)


if __name__ == "__main__":
    main()
