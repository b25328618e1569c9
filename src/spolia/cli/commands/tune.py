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
from spolia.cli.autorag_study import ImportedStudy, imported_study
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
from spolia.evaluation.data.json_lines import whole_files
from spolia.evaluation.experiment.comparison import amount
from spolia.models.file_hash import cache_folder

if TYPE_CHECKING:
    from spolia.optimizer.tuned_flow import TunedFlow

BEST, RESULT, REPORT, STUDY = "best.yaml", "tuned.json", "report.html", "study.json"
NAMED_FILES = re.compile(r"""\buse:\s*["']?([^"',}\n]+\.(?:ya?ml|json))\b""", re.IGNORECASE)
"""Flow files that a space names."""
OBJECTIVE = "nDCG@10"
LISTED = 5
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


def tune(given: TuningOptions) -> Exit:
    """Choose the best flow of a space on your own questions, within a budget.

    Spolia picks the flow on the parts `tune` and `select`, then scores it on `report`, with a bound on the regret to
    the other finalists. With fewer than 200 questions and one objective, all are used to choose, and the score is
    corrected for that. Scores are kept as they are computed: after a kill, the same command continues.
    """
    screen, given = Screen(json=given.json), with_profile_store(given, DataSet(str(given.data)))
    read = [Path(given.space), given.data, *(folder / RESULT for folder in given.warm or ())]
    if (file := Path(given.space)).is_file():
        read += [file.parent / one for one in NAMED_FILES.findall(file.read_text("utf-8", "replace"))]
    finished = FinishedStudy(given.out, given, read)
    if not given.estimate and (before := finished.read()) is not None:
        _tell_again(screen, before, given.out)
        return Exit.DONE

    study = imported_study(screen, given.space, given.out, given)
    objective, how = _search_of(given, study)
    running = TuningRun(screen, given.data, given)
    if given.estimate:
        with nullcontext(given.space) if study is None else study.as_file() as space:
            running.tuning_estimated(space, objective, given.out, **how)
        return Exit.DONE
    if study is not None:
        study.refuse_overwriting()
    prior = [*(study.prior if study else ()), *(point for folder in given.warm or () for point in _points(folder))]
    how |= {"seed": given.seed, "prior": prior, "cold": given.cold}
    how |= {"workers": given.workers, "processes": given.processes}
    with nullcontext(given.space) if study is None else study.as_file() as space:
        found, files = running.tuned(space, objective, given.out, **how)
    if study is not None:
        study.write(screen)
    result = _written(found, files, given.out)
    if given.llm == "simulated":
        result = {"simulated": True, **result}
    if study is not None:
        result = {**result, "autorag": study.json()}
    screen.give(**result)
    _show(screen, found, given)
    if found.is_cut_short or found.excluded or found.finalists[0].failed:
        return Exit.PARTLY
    _finish(finished, result, given.out)
    return Exit.DONE


def _search_of(given: TuningOptions, study: "ImportedStudy | None") -> tuple[str, dict[str, Any]]:
    """Objective and settings of the search. Options override AutoRAG's configuration; limits of both hold."""
    how: dict[str, Any] = {"budget": given.budget or None, "strategy": given.strategy or None}
    if study is None:
        return given.objective or OBJECTIVE, how | {"under": given.under or (), "combine": "front"}
    config, under = study.config, [*study.config.under, *(given.under or ())]
    if given.objective:
        return given.objective, how | {"under": under, "combine": "front"}
    return config.objective or OBJECTIVE, how | {"under": under, "combine": config.combine}


def _finish(finished: FinishedStudy, result: Mapping[str, Any], out: Path) -> None:
    """Keep the result of a study that ended: the same command then reads one file."""
    reads, store = json.loads((out / STUDY).read_text("utf-8"))["reads"], cache_folder() / "datasets"
    finished.write(result, reads, store, [out / name for name in (BEST, RESULT, REPORT, STUDY)])


def _written(found: "TunedFlow", files: Mapping[str, str], out: Path) -> dict[str, Any]:
    """The result as plain data, written with the other files or not at all."""
    result = found.json()
    files = {**files, RESULT: json_text(checksums.sign(result)) + "\n"}
    with whole_files(*(out / name for name in files)) as parts:
        for part, text in zip(parts, files.values(), strict=True):
            part.write_text(text, "utf-8")
    result["best"] |= {"file": str(out / BEST)}
    return result


def _tell_again(screen: Screen, result: dict[str, Any], out: Path) -> None:
    """The result of a study that ended, of which nothing has changed."""
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


def _points(folder: Path) -> list[dict[str, int]]:
    """The best points of an earlier study."""
    try:
        finalists = checksums.read(folder / RESULT)["finalists"]
        return [{str(name): int(at) for name, at in one["point"].items()} for one in finalists]
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise DataError(
            f"{folder / RESULT} holds no result of a study ({error}). Name the folder of one: spolia tune ... -o DIR."
        ) from error


def _show(screen: Screen, found: "TunedFlow", given: TuningOptions) -> None:
    unit = found.is_share
    has_ahead = any(
        one.ahead for one in found.finalists[1:]
    )  # not where all questions chose: only the best has a score
    listed = found.finalists[: LISTED + 1 if has_ahead or found.has_means else 1]
    rows = [
        (
            "" if at else "best",
            amount(one.score, unit) if one.score else "",
            *(amount(one.ahead, unit) if at and one.ahead else "" for _ in range(has_ahead)),
            *(", ".join(f"{name} {cell}" for name, cell in one.mean_cells) for _ in range(found.has_means)),
            *(f"{one.failed} of {one.asked}" for _ in range(found.has_failed)),
            ", ".join(map("=".join, one.choices)),
        )
        for at, one in enumerate(listed)
    ]
    more = (*("ahead of the best",) * has_ahead, *("means",) * found.has_means, *("failed",) * found.has_failed)
    screen.show(
        f"{found.objective} on {found.fresh or found.questions} {found.scored_on}; {several(found.flows, 'flow')}, "
        f"{found.asked:,} asked, {found.rows:,} scores computed now",
        table(rows, "", found.measure, *more, "choices"),
    )
    if found.regret_bound is not None:
        lost = f"{100 * found.regret_bound:.1f}" if unit else f"{found.regret_bound:.4g}"
        screen.show(f"No finalist is better by more than {lost} (95 % confidence).")
    for choices, why in found.excluded:
        screen.say(f"Left out: {one_line(choices, 80)}, since {one_line(why, 300)}", "yellow")
    for note in found.notes:
        screen.say(note, "yellow")
    best, store = given.out / BEST, f" --store {shlex.quote(given.store)}" if given.store else ""
    screen.say(f"Written: {best}. Serve it, or measure it: spolia eval {best} --data DATA{store}")
