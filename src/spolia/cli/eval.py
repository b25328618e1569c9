"""`spolia eval`: how good a flow is on questions with gold."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from spolia.cli.exits import Exit
from spolia.cli.options import AsJson, FlowArgument, ModelName, ModelUrl, Weights
from spolia.cli.screen import Screen

if TYPE_CHECKING:
    from rich.table import Table

    from spolia.evaluation.evaluate import Evaluation

MEASURES = "R@1,R@5,R@10,full@5,full@10,MRR,nDCG@10"
WHAT = "What to measure, separated by commas: R@k, full@k, MRR, MRR@k, nDCG@k."
DataFolder = Annotated[
    Path,
    typer.Option("--data", metavar="DIR", help="Folder with corpus.jsonl and questions.jsonl.", show_default=False),
]
Limit = Annotated[
    int | None, typer.Option("--limit", min=1, help="At most so many questions, drawn by the seed.", show_default=False)
]


def evaluate(
    flow: FlowArgument,
    data: DataFolder,
    limit: Limit = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Decides which questions are drawn.")] = 0,
    measures: Annotated[str, typer.Option("--measures", metavar="LIST", help=WHAT)] = MEASURES,
    llm: ModelUrl = "",
    model: ModelName = "",
    weights: Weights = "",
    json: AsJson = False,
) -> Exit:
    """Measure a flow on a data set: each measure with its 95 % bootstrap interval.

    The passages are indexed once and kept in the cache directory: SPOLIA_CACHE, else ~/.cache/spolia.
    """
    from spolia.cli.evaluated import parts_over
    from spolia.cli.parts import flow_of, model_at
    from spolia.cli.sending import tell_of_models
    from spolia.evaluation.datasets import DataSet
    from spolia.evaluation.evaluate import evaluate as run_over
    from spolia.evaluation.measures.parse import parse_measures

    screen, source, wanted = Screen(json=json), DataSet(str(data)), parse_measures(measures)
    items, reader = source.sample(limit, seed), model_at(llm, model)
    with screen.progress(f"indexing {source.name}") as told:
        parts, chosen = parts_over(source, flow, weights, reader, told)
    running, why = flow_of(flow, parts)
    if chosen or why:
        screen.say(chosen or why)
    tell_of_models(screen, running, reader)
    with screen.progress(f"asking {flow}") as told:
        found = run_over(running, items, wanted, name=flow, data=source.name, told=lambda done: told(done, len(items)))
    screen.give(**found.json(), chosen=chosen or why)
    screen.show(f"{found.flow} on {found.data}, {found.n} questions, {found.seconds:.1f} s", _table(found))
    _remark(screen, found)
    return Exit.PARTLY if found.failures else Exit.DONE


def _table(found: Evaluation) -> Table:
    from rich.table import Table

    table = Table("", "mean", "95 % interval", box=None, header_style="dim", pad_edge=False)
    for name, _ in found.scores:
        interval = found.interval(name)
        table.add_row(name, f"{interval.mean:.3f}", f"{interval.low:.3f} to {interval.high:.3f}")
    return table


def _remark(screen: Screen, found: Evaluation) -> None:
    if found.without_gold:
        screen.say(f"{found.without_gold} questions have no gold and were left out.")
    if found.failures:
        id, failure = found.failures[0]
        screen.say(
            f"{len(found.failures)} of {found.n} questions failed and score 0; the first, {id}: "
            f"{failure.kind}: {failure.message}",
            "yellow",
        )
