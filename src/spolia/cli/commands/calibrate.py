"""`spolia calibrate`: how far a judge can be believed."""

from pathlib import Path
from typing import Annotated, Any

from spolia.cli.exit_codes import Exit
from spolia.cli.experiments import make_experiments_folder
from spolia.cli.flow_parts import prepare_judge
from spolia.cli.measured_destinations import print_measured_servers
from spolia.cli.model_profile import load_profile
from spolia.cli.models import load_language_model
from spolia.cli.options import AllowEnv, AsJson, ModelName, ModelUrl, ProfileFile, Think, WeightsFolder
from spolia.cli.parameters import argument, option
from spolia.cli.screen import Renderable, Screen, table
from spolia.evaluation.measures.judged.calibration import Agreement, Calibration, calibrated, read_labelled_answers
from spolia.evaluation.measures.registry import parse_measures
from spolia.journal import Runs
from spolia.models.onnx.minilm import MiniLM
from spolia.run import Run

MAX_LISTED = 20
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
    reader = load_language_model(llm, model, load_profile(profile_file), think)
    parsed_measures = parse_measures(measures, llm=prepare_judge(reader), embedder=MiniLM(weights))
    labelled = read_labelled_answers(labels)
    print_measured_servers(screen, (), parsed_measures, reader)
    with (
        Runs(make_experiments_folder() / "judged.db") as runs,
        Run(cache=runs.cache) as run,
        screen.progress("judging") as on_progress,
    ):
        calibrations, reasons = [], []
        for measure in parsed_measures:
            with run.lane() as lane:
                calibrations.append(calibrated(measure, labelled, on_progress))  # type: ignore[arg-type]  # which it refuses
            reasons.append(lane.failure_reason or UNREADABLE)
        calls = run.actual_usage.calls
    screen.give(
        labels=str(labels), n=len(labelled), calls=calls, measures=[calibration.json() for calibration in calibrations]
    )
    for calibration, reason in zip(calibrations, reasons, strict=True):
        _show_calibration(screen, calibration)
        if calibration.agreement.undetermined:
            screen.say(f"{calibration.measure}: why the judge could not tell, the first: {reason}", "yellow")
    return Exit.DONE if all(calibration.agreement.n for calibration in calibrations) else Exit.PARTLY


def _show_calibration(screen: Screen, calibration: "Calibration") -> None:
    screen.show(f"{calibration.measure}: {calibration.agreement}")
    if calibration.agreement.n:
        screen.show(_confusion_table(calibration.agreement))
    for id, label, verdict in calibration.disagreements[:MAX_LISTED]:
        screen.show(f"{id}: labelled {label:g}, judged {verdict:g}")
    if (more := len(calibration.disagreements) - MAX_LISTED) > 0:
        screen.say(f"... and {more} more that differ; --json has all.")


def _confusion_table(agreement: "Agreement") -> Renderable:
    """Build a table with a row for each label and a column for each verdict."""
    words = sorted({word for pair, _ in agreement.confusion for word in pair}, key=float)
    counts: dict[Any, int] = dict(agreement.confusion)
    rows = ((label, *(str(counts.get((label, verdict), 0)) for verdict in words)) for label in words)
    return table(rows, "labelled", *(f"judged {word}" for word in words))
