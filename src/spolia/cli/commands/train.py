"""`spolia train`: a part of a flow, fitted to your own questions."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from spolia.cli.commands.eval import DATA
from spolia.cli.exit_codes import Exit
from spolia.cli.options import Known, MaybeStore, RerankOptions, argument, option
from spolia.cli.screen import Screen
from spolia.errors import DataError

if TYPE_CHECKING:
    from spolia.cli.flow_parts import Parts
    from spolia.types import Item


def train(
    given: RerankOptions,
    part: Annotated[str, argument("PART", "The part to train: ranker, reader.")],
    data: Annotated[Path, option("--data DATA", DATA)],
    out: Annotated[
        Path,
        typer.Option("--out", "-o", metavar="DIR", help="Folder for weights, card.json and flow.yaml."),
    ],
    store: MaybeStore = None,
    steps: Annotated[
        int | None, option("--steps", "How many steps, at most; by default as the part needs.", min=1)
    ] = None,
    budget: Annotated[
        str, option("--budget TIME", "Time for the steps, such as 15m, in place of their number; a pilot converts it.")
    ] = "",
    kept_apart: Annotated[
        Path | None,
        option(
            "--kept-apart DATA",
            "Questions of the same store for the score; all of --data are trained on then. By default the part report.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of everything that is drawn by lot.")] = 0,
    known: Known = None,
    json: Annotated[bool, option("--json", "One JSON object on stdout, messages on stderr.")] = False,
) -> Exit:
    """Train a part of a flow on your own questions, and score it on questions that it was not trained on.

    Questions of the part `tune` are trained on, `select` validates, `report` gives the score. The same command again
    goes on where it was stopped, and gives the same weights.
    """
    from spolia.cli.flow_parts import STAND_IN, parts_of
    from spolia.cli.models import embedder_for
    from spolia.cli.options import MAIN
    from spolia.evaluation.data.dataset import DataSet
    from spolia.evaluation.data.passage_store import cache_folder, indexed
    from spolia.evaluation.data.usage_log import UsageLog, marks_of
    from spolia.training.parts import trainer_of
    from spolia.training.training import train as trained

    screen, source = Screen(json=json), DataSet(str(data))
    items = list(source.items(stored=store is not None))
    if store is None:
        with screen.progress(f"indexing {source.name}") as told:
            embedder = embedder_for(given, None, MAIN)
            parts = STAND_IN.but(chunks=indexed(source, embedder, told=told), embedder=embedder)
    else:
        parts = parts_of(store, given, known=known)
    with screen.progress(f"training a {part}") as progress:
        found = trained(
            trainer_of(part, parts.chunks, _embedder(parts, screen)),
            items,
            out,
            kept_apart=_others(kept_apart, store),
            steps=steps,
            budget_s=_seconds(budget),
            seed=seed,
            data=source.name,
            given=parts.given(),
            usage_log=UsageLog.of_data(data, cache_folder(), marks_of(items)),
            told=lambda step, of, loss, validation: progress(step, of, _curve(loss, validation)),
        )
    screen.give(sha256=found.sha256, card=found.card, flow=str(out / "flow.yaml"))
    _show(screen, found.card, out)
    return Exit.DONE


def _embedder(parts: "Parts", screen: Screen) -> Any:
    """The embedder, if the group has its vectors; else None, with a message."""
    if parts.embedder is None or parts.chunks.snapshot().manifest(parts.chunks.name).embedded(parts.embedder.name):
        return parts.embedder
    screen.say("The store has no vectors: the part is trained without an embedder.", "yellow")
    return None


def _others(data: Path | None, store: str | None) -> "list[Item] | None":
    from spolia.evaluation.data.dataset import DataSet

    return None if data is None else list(DataSet(str(data)).items(stored=store is not None))


def _seconds(budget: str) -> float | None:
    from spolia.optimizer.budget import SECONDS, TuningBudget

    if not budget:
        return None
    found = TuningBudget.parse(budget)
    if found.unit != SECONDS:
        raise DataError(f"--budget {budget} is not a time. Write 90s, 15m or 2h, or a number of steps: --steps N.")
    return found.amount


def _curve(loss: float, validation: float | None) -> str:
    return f"loss {loss:.4f}" + ("" if validation is None else f", validation {validation:.4f}")


def _show(screen: Screen, card: Any, out: Path) -> None:
    asked = card["questions"]
    screen.show(
        f"Trained a {card['part']} on {asked['train']} questions in {card['steps']['made']} steps, "
        f"{card['cost']['prepare_cpu_s'] + card['cost']['steps_cpu_s']:.1f} CPU-s."
    )
    if (score := card["score"]) is not None:
        gain = score["difference"]
        screen.show(
            f"{score['measure']} on {score['n']} other questions: {score['trained']['mean']:.3f}, untrained "
            f"{score['untrained']['mean']:.3f}; difference {gain['mean']:+.3f} "
            f"[{gain['low']:+.3f}, {gain['high']:+.3f}]"
        )
    for note in card["notes"]:
        screen.say(note)
    screen.say(f"Written: {out / 'flow.yaml'}. Use it: spolia search QUESTION --flow {out / 'flow.yaml'} --store STORE")
