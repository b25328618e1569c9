"""`spolia tune`: the best flow of a space on your own questions."""

import json
import re
import shlex
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from spolia import checksums
from spolia.cli.autorag_study import ImportedStudy, read_imported_study
from spolia.cli.commands.eval import DATA
from spolia.cli.exit_codes import Exit
from spolia.cli.experiments import with_profile_store
from spolia.cli.finished_study import FinishedStudy
from spolia.cli.measuring_options import MeasuringOptions
from spolia.cli.options import Estimated
from spolia.cli.parameters import argument, option
from spolia.cli.screen import Screen, json_text, one_line, table
from spolia.cli.tuning_run import TuningRun
from spolia.core.plurals import several
from spolia.errors import DataError
from spolia.evaluation.data.dataset import DataSet
from spolia.evaluation.data.json_lines import replace_files
from spolia.evaluation.experiment.comparison import format_interval
from spolia.models.file_hash import cache_folder

if TYPE_CHECKING:
    from spolia.optimizer.tuned_flow import TunedFlow

BEST, RESULT, REPORT, STUDY = "best.yaml", "tuned.json", "report.html", "study.json"
NAMED_FILES = re.compile(r"""\buse:\s*["']?([^"',}\n]+\.(?:ya?ml|json))\b""", re.IGNORECASE)
"""Flow files that a space names."""
OBJECTIVE = "nDCG@10"
MAX_LISTED = 5
"""Flows that are shown beside the chosen one."""


@dataclass(frozen=True, kw_only=True)
class TuningOptions(MeasuringOptions):
    """The space, the data and the search of `spolia tune`."""

    space: Annotated[
        str,
        argument(
            "SPACE",
            "A YAML file with a flow that has open places: Choice and Vary; or AutoRAG's config.yaml, or the folder of "
            "its trial.",
        ),
    ]
    data: Annotated[Path, option("--data DATA", DATA)]
    out: Annotated[
        Path,
        option("--out DIR", "Folder for the study and best.yaml; it can be continued.", short="-o"),
    ]
    objective: Annotated[
        str,
        option(
            "--objective MEASURE",
            "The measure to optimize, see `spolia eval`; of several, as nDCG@10,ATC, the knee of their Pareto "
            "front. By default nDCG@10, or what a configuration of AutoRAG names.",
        ),
    ] = ""
    under: Annotated[
        list[str] | None,
        option("--under MEASURE=NUMBER", "Limit on the mean of a measure per question, such as USD=0.002; repeatable."),
    ] = None
    budget: Annotated[
        str,
        option(
            "--budget AMOUNT",
            "Limit of the search: a share of flows × questions (5%), '2000 rows', '500 calls', '200k tokens', "
            "'2 USD', or a time (10m); by default all scores.",
        ),
    ] = ""
    strategy: Annotated[
        str,
        option(
            "--strategy NAME",
            "neighbours (the default), halving, third, greedy, models-first, tpe, bandit, prove, random, grid (the "
            "default if the budget allows).",
        ),
    ] = ""
    warm: Annotated[
        list[Path] | None,
        option("--warm DIR", "Begin with the best flows of this study of other questions; repeatable."),
    ] = None
    cold: Annotated[
        bool,
        option("--cold", "Ignore earlier studies of other questions."),
    ] = False
    workers: Annotated[
        int,
        option("--workers N", "Limit on concurrent calls to servers. The result is the same for any number.", min=1),
    ] = 8
    processes: Annotated[
        int,
        option(
            "--processes N",
            "Processes that compute searches without a model; 0 uses only this one. The result is the same for "
            "any number.",
            min=0,
        ),
    ] = 0
    estimate: Estimated = False


def tune(options: TuningOptions) -> Exit:
    """Choose the best flow of a space on your own questions, within a budget.

    Spolia picks the flow on the parts `tune` and `select`, then scores it on `report`, with a bound on the regret to
    the other finalists. With fewer than 200 questions and one objective, all are used to choose, and the score is
    corrected for that. Scores are kept as they are computed: after a kill, the same command continues.
    """
    screen, options = Screen(json=options.json), with_profile_store(options, DataSet(str(options.data)))
    input_files = [Path(options.space), options.data, *(folder / RESULT for folder in options.warm or ())]
    if (file := Path(options.space)).is_file():
        input_files += [file.parent / name for name in NAMED_FILES.findall(file.read_text("utf-8", "replace"))]
    finished = FinishedStudy(options.out, options, input_files)
    # A finished study is answered from its file, before the optimizer is imported.
    if not options.estimate and (earlier_result := finished.read()) is not None:
        _repeat_result(screen, earlier_result, options.out)
        return Exit.DONE

    study = read_imported_study(screen, options.space, options.out, options)
    objective, search_options = _build_search_options(options, study)
    running = TuningRun(screen, options.data, options)
    if options.estimate:
        with nullcontext(options.space) if study is None else study.as_file() as space:
            running.print_tuning_estimate(space, objective, options.out, **search_options)
        return Exit.DONE
    if study is not None:
        study.refuse_overwriting()  # before anything is asked
    prior = [
        *(study.prior if study else ()),
        *(point for folder in options.warm or () for point in _read_points(folder)),
    ]
    search_options |= {"seed": options.seed, "prior": prior, "cold": options.cold}
    search_options |= {"workers": options.workers, "processes": options.processes}
    with nullcontext(options.space) if study is None else study.as_file() as space:
        tuned_flow, files = running.tune_space(space, objective, options.out, **search_options)
    if study is not None:
        study.write(screen)
    result = _write_result(tuned_flow, files, options.out)
    if options.llm == "simulated":
        result = {"simulated": True, **result}
    if study is not None:
        result = {**result, "autorag": study.json()}
    screen.give(**result)
    _show_result(screen, tuned_flow, options)
    # Not saved: the same command goes on, or asks again what failed.
    if tuned_flow.is_cut_short or tuned_flow.excluded or tuned_flow.finalists[0].failed:
        return Exit.PARTLY
    _save_result(finished, result, options.out)
    return Exit.DONE


def _build_search_options(options: TuningOptions, study: "ImportedStudy | None") -> tuple[str, dict[str, Any]]:
    """Objective and settings of the search. Options override AutoRAG's configuration; limits of both hold."""
    search_options: dict[str, Any] = {"budget": options.budget or None, "strategy": options.strategy or None}
    if study is None:
        return options.objective or OBJECTIVE, search_options | {"under": options.under or (), "combine": "front"}
    config, under = study.config, [*study.config.under, *(options.under or ())]
    if options.objective:
        return options.objective, search_options | {"under": under, "combine": "front"}
    return config.objective or OBJECTIVE, search_options | {"under": under, "combine": config.combine}


def _save_result(finished: FinishedStudy, result: Mapping[str, Any], out: Path) -> None:
    """Keep the result of a study that ended: the same command then reads one file."""
    reads, store = json.loads((out / STUDY).read_text("utf-8"))["reads"], cache_folder() / "datasets"
    finished.write(result, reads, store, [out / name for name in (BEST, RESULT, REPORT, STUDY)])


def _write_result(tuned_flow: "TunedFlow", files: Mapping[str, str], out: Path) -> dict[str, Any]:
    """Write the result and the other files, or none of them; return the result as plain data."""
    result = tuned_flow.json()
    files = {**files, RESULT: json_text(checksums.sign(result)) + "\n"}
    with replace_files(*(out / name for name in files)) as parts:
        for part, text in zip(parts, files.values(), strict=True):
            part.write_text(text, "utf-8")
    result["best"] |= {"file": str(out / BEST)}
    return result


def _repeat_result(screen: Screen, result: dict[str, Any], out: Path) -> None:
    """Print the result of a finished study again, since nothing has changed."""
    result["spent"] = dict.fromkeys(result["spent"], 0)
    score, choices = result["score"], ", ".join(map("=".join, result["best"]["choices"].items()))
    screen.give(**result)
    screen.write(
        f"{result['objective']} on {result['fresh_questions'] or result['questions']} {result['scored_on']}: "
        f"{score['mean']:.4g} [{score['low']:.4g}, {score['high']:.4g}], the best of {result['flows']:,} flows\n"
        f"{choices}"
    )
    for note in result["notes"]:
        screen.say(note, "yellow")
    screen.say(f"Nothing has changed since this study ended, and nothing was computed. All of it: {out / REPORT}")


def _read_points(folder: Path) -> list[dict[str, int]]:
    """Read the best points of an earlier study."""
    try:
        finalists = checksums.read(folder / RESULT)["finalists"]
        return [{str(name): int(index) for name, index in finalist["point"].items()} for finalist in finalists]
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise DataError(
            f"{folder / RESULT} holds no result of a study ({error}). Name the folder of one: spolia tune ... -o DIR."
        ) from error


def _show_result(screen: Screen, tuned_flow: "TunedFlow", options: TuningOptions) -> None:
    is_share = tuned_flow.is_share
    has_ahead = any(
        finalist.ahead for finalist in tuned_flow.finalists[1:]
    )  # not where all questions chose: only the best has a score
    listed = tuned_flow.finalists[: MAX_LISTED + 1 if has_ahead or tuned_flow.has_means else 1]
    rows = [
        (
            "" if rank else "best",
            format_interval(finalist.score, is_share) if finalist.score else "",
            *(format_interval(finalist.ahead, is_share) if rank and finalist.ahead else "" for _ in range(has_ahead)),
            *(", ".join(f"{name} {cell}" for name, cell in finalist.mean_cells) for _ in range(tuned_flow.has_means)),
            *(f"{finalist.failed} of {finalist.questions_asked}" for _ in range(tuned_flow.has_failed)),
            ", ".join(map("=".join, finalist.choices)),
        )
        for rank, finalist in enumerate(listed)
    ]
    columns = (
        *("ahead of the best",) * has_ahead,
        *("means",) * tuned_flow.has_means,
        *("failed",) * tuned_flow.has_failed,
    )
    screen.show(
        f"{tuned_flow.objective} on {tuned_flow.fresh or tuned_flow.questions} {tuned_flow.scored_on}; "
        f"{several(tuned_flow.flows, 'flow')}, {tuned_flow.flows_asked:,} asked, {tuned_flow.rows:,} scores computed "
        "now",
        table(rows, "", tuned_flow.measure, *columns, "choices"),
    )
    if tuned_flow.regret_bound is not None:
        lost = f"{100 * tuned_flow.regret_bound:.1f}" if is_share else f"{tuned_flow.regret_bound:.4g}"
        screen.show(f"No finalist is better by more than {lost} (95 % confidence).")
    for choices, reason in tuned_flow.excluded:
        screen.say(f"Left out: {one_line(choices, 80)}, since {one_line(reason, 300)}", "yellow")
    for note in tuned_flow.notes:
        screen.say(note, "yellow")
    best, store = options.out / BEST, f" --store {shlex.quote(options.store)}" if options.store else ""
    screen.say(f"Written: {best}. Serve it, or measure it: spolia eval {best} --data DATA{store}")
