"""`spolia init`: a project that is indexed, measured and gated."""

from __future__ import annotations

import os
import shlex
import shutil
from dataclasses import fields
from pathlib import Path
from string import Template
from typing import Annotated, Any

from spolia.cli import ingest, runs
from spolia.cli.commands.questions import QUESTIONS, write_created
from spolia.cli.exit_codes import Exit
from spolia.cli.experiments import EvaluationRun, GateOptions
from spolia.cli.flow_parts import build_parts, load_flow
from spolia.cli.measured_destinations import print_measured_servers
from spolia.cli.measuring_options import MeasuringOptions
from spolia.cli.model_profile import load_profile
from spolia.cli.models import NEEDS_BOTH, load_language_model
from spolia.cli.options import AsJson, ModelName, ModelOptions, ModelUrl, RerankOptions, Think
from spolia.cli.parameters import argument, option
from spolia.cli.screen import Screen, json_text
from spolia.cli.store_options import StoreOptions
from spolia.errors import QueryError
from spolia.evaluation.creation.creation import create
from spolia.evaluation.creation.recipes import recipe
from spolia.evaluation.data.dataset import DataSet
from spolia.evaluation.gate.gate import TOLERANCE
from spolia.flow_files.files import dump
from spolia.stores.corpus import Corpus

TEMPLATES = Path(__file__).parents[1] / "project"
HEADER = "question,answer,file\n"
"""Of questions that are still to be written."""
PROFILE, README = "spolia.toml", "README.md"
UNREAD = "Some documents could not be read: the log of this step lists them. The gate measures the others."
VECTORS = {None: "", True: " --vectors", False: " --no-vectors"}


def init(
    models: ModelOptions,
    project: Annotated[Path, argument("PROJECT", "Folder to write; it must be new or empty.")],
    docs: Annotated[Path, option("--docs DIR", "Folder with your documents.")],
    questions: Annotated[
        Path | None, option("--questions FILE", "Your questions: CSV, XLSX, Parquet, JSON or JSON lines.")
    ] = None,
    n: Annotated[int, option("--n", "Without --questions and with --llm: how many questions it writes.", min=1)] = 30,
    vectors: Annotated[bool | None, option("--vectors/--no-vectors", "As for `spolia index`.")] = None,
    llm: ModelUrl = "",
    model: ModelName = "",
    think: Think = 0,
    json: AsJson = False,
) -> Exit:
    """Make a project from your documents: a store, a flow, questions, a gate for CI, and a README with the commands.

    The scores of the flow on your questions become the baseline of the gate. Without --questions, a model writes some
    from the documents (--llm and --model); without a model, you get an empty file to fill in.
    """
    screen = Screen(json=json)
    profile = _profile(llm, model, think, models)
    _refuse(project, docs, questions, profile)
    project.mkdir(parents=True, exist_ok=True)
    (project / PROFILE).write_text(profile, "utf-8")  # README.md comes last: until then the same command goes on
    store, docs_path = project / "store", os.path.relpath(docs, project)
    indexed = _index(screen, models, docs, store, vectors)
    data = _write_questions(project, questions)
    if questions is None and llm:
        data = _create_questions(screen, project, store, n, llm, model, think, models.profile_file) or data
    _write_flow(project / "flow.yaml", store, models)
    has_questions = data.read_bytes() != HEADER.encode()
    if has_questions:
        _write_baseline(screen, project, data, models)
    (project / ".gitignore").write_text("store/\ngate.md\n", "utf-8")
    index = f"spolia index {shlex.quote(docs_path)} --store store{VECTORS[vectors]}"
    names = {
        "name": project.resolve().name,
        "docs": shlex.quote(docs_path),
        "questions": shlex.quote(data.name),
        "index": index,
        "index_in_yaml": json_text(f'{index} || {{ [ $? -eq {Exit.PARTLY:d} ] && echo "::warning::{UNREAD}"; }}'),
    }
    for template, place in (("retrieval.yml", ".github/workflows/retrieval.yml"), (README, README)):
        (project / place).parent.mkdir(parents=True, exist_ok=True)
        (project / place).write_text(Template((TEMPLATES / template).read_text("utf-8")).substitute(names), "utf-8")
    files = sorted(path.relative_to(project).as_posix() for path in project.rglob("*") if path.is_file())
    files = [name for name in files if not name.startswith("store/")]
    measure = f"spolia eval bm25 flow.yaml --data {names['questions']} --store store"
    next_commands = [f"cd {shlex.quote(str(project))}", measure]
    if not has_questions:
        next_commands.insert(1, f"# write your questions into {data.name}; README.md says how")
    screen.give(project=str(project), store=str(store), files=files, next=next_commands, **indexed)
    screen.show(
        "",
        *(f"written: {project / name}" for name in files),
        "",
        "Next:",
        *(f"  {command}" for command in next_commands),
    )
    return Exit.PARTLY if indexed["failed"] or indexed["unmade"] else Exit.DONE


def _write_baseline(screen: Screen, project: Path, data: Path, models: ModelOptions) -> None:
    """Write the scores of the flow as the baseline, as `spolia gate --write` does."""
    baseline, flow, store = project / "baseline.json", str(project / "flow.yaml"), str(project / "store")
    evaluation = EvaluationRun(screen, data, MeasuringOptions(store=store, **_model_options(models)))
    _, new_baseline = evaluation.baseline(flow, "", {"tolerance": TOLERANCE, "tolerances": {}, "rule": "not-worse"})
    new_baseline.but(flow="flow.yaml", command=GateOptions(flow, str(data), store).to_command(baseline)).write(baseline)


def _model_options(models: ModelOptions) -> dict[str, Any]:
    """Return the models as options of another command."""
    return {field.name: getattr(models, field.name) for field in fields(ModelOptions)}


def _is_unfinished(project: Path, profile: str) -> bool:
    """Check whether the same command began this project and was stopped."""
    profile_file = project / PROFILE
    return profile_file.is_file() and not (project / README).exists() and profile_file.read_bytes() == profile.encode()


def _refuse(project: Path, docs: Path, questions: Path | None, profile: str) -> None:
    """Refuse to write over files, and to begin what cannot be ended."""
    is_free = not project.exists() or (project.is_dir() and not any(project.iterdir()))
    if not is_free and not _is_unfinished(project, profile):
        raise QueryError(f"{project} exists and is not an empty folder. Name a new one: spolia init NAME --docs {docs}")
    if not docs.is_dir():
        raise QueryError(f"Folder not found: {docs}. Write --docs DIR, a folder with your documents.")
    if questions is not None:
        next(DataSet(str(questions)).items(stored=True), None)  # wrong columns are an error before anything is indexed


def _index(screen: Screen, models: ModelOptions, docs: Path, store: Path, vectors: bool | None) -> dict[str, Any]:
    options = StoreOptions(str(store), [str(docs)], vectors=vectors, **_model_options(models))
    report, chosen = ingest.index_folder(screen, options)
    warnings = ingest.list_warnings(report, str(store))
    screen.say(chosen)
    screen.show(ingest.format_report(report, str(store), warnings))
    return ingest.report_data(report, warnings)


def _create_questions(
    screen: Screen, project: Path, store: Path, n: int, llm: str, model: str, think: int, profile: Path | None
) -> Path | None:
    """Have a model write questions from the documents, with a table to review them; None if it kept none."""
    writer_model = load_language_model(llm, model, load_profile(profile), think)
    if writer_model is None:
        raise QueryError(NEEDS_BOTH)
    question_counts = {recipe("factoid", Corpus(str(store)).group(), writer_model): n}
    with runs.record_run(str(store), screen, None) as run:
        print_measured_servers(
            screen, [question_recipe.flow for question_recipe in question_counts], (), estimate=False
        )
        with run.lane(), screen.progress("writing questions") as on_progress:
            created = create(question_counts, on_progress=on_progress)
    items = write_created(project, created)
    screen.say(f"{len(items)} of {n} questions were kept. Review them in {project / 'review.csv'}.")
    if not items:
        return None
    (project / "questions.csv").unlink()
    return project / QUESTIONS


def _write_questions(project: Path, file: Path | None) -> Path:
    """Copy your questions into the project, or write an empty file to fill in."""
    if file is None:
        empty = project / "questions.csv"
        empty.write_text(HEADER, "utf-8")
        return empty
    return Path(shutil.copyfile(file, project / f"questions{file.suffix.lower()}"))


def _write_flow(path: Path, store: Path, models: ModelOptions) -> None:
    """Write the default search of the store as a flow file that you can change."""
    parts = build_parts(str(store), RerankOptions(**_model_options(models)))
    path.write_text(dump(load_flow("default", parts)[0], parts.by_name()), "utf-8")


def _profile(llm: str, model: str, think: int, models: ModelOptions) -> str:
    """`spolia.toml`: the store, and the models that were named."""
    lines = ['store = "store"']
    for table, url, name in (("llm", llm, model), ("embedder", models.embedder, models.embed_model)):
        if url:
            lines += ["", f"[{table}]", f"url = {json_text(url)}", *([f"model = {json_text(name)}"] if name else [])]
            lines += [f"thought_tokens = {think}"] if think and table == "llm" else []
    return "\n".join(lines) + "\n"
