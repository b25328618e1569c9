"""`spolia eval`: flows measured on the same questions."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated

from spolia.cli import reports
from spolia.cli.exit_codes import Exit
from spolia.cli.experiments import EvaluationRun, with_profile_store
from spolia.cli.measuring_options import MeasuringOptions
from spolia.cli.options import FLOWS, Estimated
from spolia.cli.parameters import argument, option
from spolia.cli.screen import Screen
from spolia.errors import DataError
from spolia.evaluation.data.dataset import DataSet

KINDS = (".html", ".md", ".json")


def refuse_other_kinds(paths: Iterable[Path], kinds: Sequence[str] = KINDS) -> None:
    """Refuse what no report can be written to, before anything is asked."""
    for path in paths:
        if path.suffix not in kinds:
            raise DataError(f"A report cannot be written as {path.name!r}. End its name in one of: {', '.join(kinds)}.")
        if not path.parent.is_dir():
            raise DataError(f"There is no folder {path.parent} to write {path.name} to. Make it first.")


WHAT = (
    "What to measure, separated by commas. By default R@k, full@k, MRR and nDCG@10 if the questions have gold, EM and "
    "F1 if they have answers and a flow answers. Of passages: R@k, full@k, P@k, Hit@k, MRR, MAP, nDCG@k, Rprec, "
    "SetP, SetR, SetF1, AnswerHit@k, TopScore. Of answers: EM, F1, Acc, PrefRAG-Avg, ROUGE-1, ROUGE-2, ROUGE-L, BLEU, "
    "SentenceBLEU, "
    "METEOR-no-synonyms, SemScore, CiteP, CiteR. Of abstaining: Coverage, Risk, AbstentionF1, AURC. Of cost: ATC, "
    "Calls, UsedCalls, DocsShown, USD, Seconds. With --llm as the judge: ContextPrecision, Faithfulness, "
    "AnswerRelevancy, Correctness, GEval, ALCE-R, ALCE-P. docs/reference/measures.md has formulas, sources and rules."
)
Flows = Annotated[list[str], argument("FLOW", f"One flow or several. {FLOWS}")]
DATA = "Folder with questions.jsonl and maybe corpus.jsonl, or a table of questions: CSV, XLSX, Parquet, JSON."
DataFolder = Annotated[Path, option("--data DATA", DATA)]
By = Annotated[
    list[str] | None, option("--by FIELD", "Slice by `type` (the default, if there is one) or metadata; repeatable.")
]
Correction = Annotated[str, option("--correction NAME", "For many comparisons: holm, bh or none.")]
Primary = Annotated[
    str, option("--primary MEASURE", "Compare flows on this measure alone; the others are measured, not compared.")
]
Against = Annotated[str, option("--against FLOW", "Compare each flow with this one alone, not with every other.")]
Kept = Annotated[
    Path | None,
    option(
        "--save FILE",
        "Keep answers and scores in this file (.experiment), by default in the cache directory. The next run computes "
        "only the cells of a new or changed flow, question or measure.",
    ),
]
Reports = Annotated[
    list[Path] | None,
    option("--report FILE", "Write a report: .html (plots and every question), .md or .json; repeatable."),
]


def evaluate(
    options: MeasuringOptions,
    flows: Flows,
    data: DataFolder,
    measures: Annotated[str, option("--measures LIST", WHAT)] = "",
    slice_fields: By = None,
    correction: Correction = "holm",
    primary: Primary = "",
    against: Against = "",
    save: Kept = None,
    asks_again: Annotated[bool, option("--again", "Ask every question again, including stored ones.")] = False,
    report: Reports = None,
    overlap: Annotated[bool, option("--overlap", "Also score questions that were used to select a flow.")] = False,
    estimate: Estimated = False,
) -> Exit:
    """Measure flows on the same questions, with 95 % intervals, and say which differences are shown.

    Answers and scores are kept, also after a kill. If a flow, a question or a measure has changed, it is computed
    again, and the report says so. The passages are indexed once and kept in the cache directory: SPOLIA_CACHE, else
    ~/.cache/spolia.
    """
    screen, options = Screen(json=options.json), with_profile_store(options, DataSet(str(data)))
    refuse_other_kinds(report or ())
    # An existing folder stays one: each flow has a file of its own there.
    if save is not None and not save.suffix and not save.exists():
        save = save.with_suffix(".experiment")
    if estimate:
        EvaluationRun(screen, data, options).print_estimate(flows, measures)
        return Exit.DONE
    results, chosen, traces, planner = EvaluationRun(screen, data, options).report(
        flows,
        measures,
        by=slice_fields,
        correction=correction,
        primary=primary,
        against=against,
        save=save,
        asks_again=asks_again,
        overlap=overlap,
        degraded=options.degraded,
    )
    for path in report or ():
        reports.write_report(results, path, traces)
    single_flow = (
        results.flows[0].json() if len(results.flows) == 1 else {}
    )  # the fields of a single flow also stand at the top
    simulated = {"simulated": True, "planner": planner} if options.llm == "simulated" else {}
    screen.give(
        **simulated,
        **single_flow | results.json() | single_flow,  # first for the order of the fields, last so that its values hold
        chosen=chosen[0] if len(chosen) == 1 else dict(zip(flows, chosen, strict=True)),
    )
    reports.show_report(screen, results)
    return Exit.PARTLY if results.is_partial(options.degraded) else Exit.DONE
