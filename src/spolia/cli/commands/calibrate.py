"""`spolia calibrate`: how far a judge can be believed."""

from pathlib import Path
from typing import Annotated, Any

from spolia.cli.exit_codes import Exit
from spolia.cli.experiments import kept_in
from spolia.cli.flow_parts import judging
from spolia.cli.measured_destinations import tell_of_measured
from spolia.cli.model_profile import profile_of
from spolia.cli.models import model_at
from spolia.cli.options import AllowEnv, AsJson, ModelName, ModelUrl, ProfileFile, Think, WeightsFolder
from spolia.cli.parameters import argument, option
from spolia.cli.screen import Renderable, Screen, table
from spolia.evaluation.measures.judged.calibration import Agreement, Calibration, calibrated, read_labelled_answers
from spolia.evaluation.measures.registry import parse_measures
from spolia.journal import Runs
from spolia.models.onnx.minilm import MiniLM
from spolia.run import Run

TOLD = 20
"""Answers that are named."""
UNREADABLE = "its reply could not be read, or the answer had no text to judge."
Labels = Annotated[
    Path,
    argument(
        "LABELS",
        "JSON lines, one for each answer that people labelled: id, question, answers (accepted ones), answer, "
        "passages (texts that it was made from), label (1 or 0, yes or no, or a grade).",
    ),
]
JudgeMeasures = Annotated[
    str,
    option(
        "--measures LIST",
        "Measures of the judge, separated by commas: Correctness, Faithfulness, AnswerRelevancy, GEval, "
        "ContextPrecision, ALCE-R, ALCE-P; or a measure without a judge, such as F1.",
    ),
]


def calibrate(
    labels: Labels,
    measures: JudgeMeasures = "Correctness",
    llm: ModelUrl = "",
    model: ModelName = "",
    think: Think = 0,
    weights: WeightsFolder = "",
    allow_env: AllowEnv = None,
    profile_file: ProfileFile = None,
    json: AsJson = False,
) -> Exit:
    """Judge answers that people have labelled, and report how often judge and people agree: kappa, confusion,
    undetermined.

    Cohen's kappa is 1 where judge and people always say the same, and 0 where they do so as often as by chance. A
    score between labels counts as the nearest one. Spolia keeps the judge's verdicts, so a second run
    asks nothing again.
    """
    screen = Screen(json=json)
    reader = model_at(llm, model, profile_of(profile_file), think)
    wanted = parse_measures(measures, llm=judging(reader), embedder=MiniLM(weights))
    labelled = read_labelled_answers(labels)
    tell_of_measured(screen, (), wanted, reader)
    with Runs(kept_in() / "judged.db") as runs, Run(cache=runs.cache) as run, screen.progress("judging") as told:
        found, silent = [], []
        for one in wanted:
            with run.lane() as lane:
                found.append(calibrated(one, labelled, told))  # type: ignore[arg-type]  # which it refuses
            silent.append(lane.why or UNREADABLE)
        calls = run.spent.calls
    screen.give(labels=str(labels), n=len(labelled), calls=calls, measures=[one.json() for one in found])
    for calibration, why in zip(found, silent, strict=True):
        _show(screen, calibration)
        if calibration.agreement.undetermined:
            screen.say(f"{calibration.measure}: why the judge could not tell, the first: {why}", "yellow")
    return Exit.DONE if all(one.agreement.n for one in found) else Exit.PARTLY


def _show(screen: Screen, found: "Calibration") -> None:
    screen.show(f"{found.measure}: {found.agreement}")
    if found.agreement.n:
        screen.show(_confusion(found.agreement))
    for id, label, said in found.differ[:TOLD]:
        screen.show(f"{id}: labelled {label:g}, judged {said:g}")
    if (more := len(found.differ) - TOLD) > 0:
        screen.say(f"... and {more} more that differ; --json has all.")


def _confusion(found: "Agreement") -> Renderable:
    """A row for each label, a column for each verdict."""
    words = sorted({word for pair, _ in found.confusion for word in pair}, key=float)
    counted: dict[Any, int] = dict(found.confusion)
    rows = ((label, *(str(counted.get((label, said), 0)) for said in words)) for label in words)
    return table(rows, "labelled", *(f"judged {word}" for word in words))
