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
from spolia.cli.flow_parts import flow_of, parts_of
from spolia.cli.measured_destinations import tell_of_measured
from spolia.cli.measuring_options import MeasuringOptions
from spolia.cli.model_profile import profile_of
from spolia.cli.models import NEEDS_BOTH, model_at
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
    store, at = project / "store", os.path.relpath(docs, project)
    indexed = _index(screen, models, docs, store, vectors)
    data = _questions(project, questions)
    if questions is None and llm:
        data = _created(screen, project, store, n, llm, model, think, models.profile_file) or data
    _write_flow(project / "flow.yaml", store, models)
    has_questions = data.read_bytes() != HEADER.encode()
    if has_questions:
        _write_baseline(screen, project, data, models)
    (project / ".gitignore").write_text("store/\ngate.md\n", "utf-8")
    index = f"spolia index {shlex.quote(at)} --store store{VECTORS[vectors]}"
    names = {
        "name": project.resolve().name,
        "docs": shlex.quote(at),
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
    following = [f"cd {shlex.quote(str(project))}", measure]
    if not has_questions:
        following.insert(1, f"# write your questions into {data.name}; README.md says how")
    screen.give(project=str(project), store=str(store), files=files, next=following, **indexed)
    screen.show("", *(f"written: {project / name}" for name in files), "", "Next:", *(f"  {one}" for one in following))
    return Exit.PARTLY if indexed["failed"] or indexed["unmade"] else Exit.DONE


def _write_baseline(screen: Screen, project: Path, data: Path, models: ModelOptions) -> None:
    """The scores of the flow, as `spolia gate --write` writes them."""
    baseline, flow, store = project / "baseline.json", str(project / "flow.yaml"), str(project / "store")
    asked = EvaluationRun(screen, data, MeasuringOptions(store=store, **_shared(models)))
    _, written = asked.baseline(flow, "", {"tolerance": TOLERANCE, "tolerances": {}, "rule": "not-worse"})
    written.but(flow="flow.yaml", command=GateOptions(flow, str(data), store).kept(baseline)).write(baseline)


def _shared(models: ModelOptions) -> dict[str, Any]:
    """The models as options of another command."""
    return {one.name: getattr(models, one.name) for one in fields(ModelOptions)}


def _is_unfinished(project: Path, profile: str) -> bool:
    """Whether the same command began this project, and was stopped."""
    begun = project / PROFILE
    return begun.is_file() and not (project / README).exists() and begun.read_bytes() == profile.encode()


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
    making = StoreOptions(str(store), [str(docs)], vectors=vectors, **_shared(models))
    report, chosen = ingest.index_folder(screen, making)
    warnings = ingest.warnings_of(report, str(store))
    screen.say(chosen)
    screen.show(ingest.report_text(report, str(store), warnings))
    return ingest.report_data(report, warnings)


def _created(
    screen: Screen, project: Path, store: Path, n: int, llm: str, model: str, think: int, profile: Path | None
) -> Path | None:
    """Questions that a model writes from the documents, with a table to review them; None if it kept none."""
    asked = model_at(llm, model, profile_of(profile), think)
    if asked is None:
        raise QueryError(NEEDS_BOTH)
    wanted = {recipe("factoid", Corpus(str(store)).group(), asked): n}
    with runs.recorded(str(store), screen, None) as run:
        tell_of_measured(screen, [made.flow for made in wanted], (), estimate=False)
        with run.lane(), screen.progress("writing questions") as told:
            created = create(wanted, told=told)
    items = write_created(project, created)
    screen.say(f"{len(items)} of {n} questions were kept. Review them in {project / 'review.csv'}.")
    if not items:
        return None
    (project / "questions.csv").unlink()
    return project / QUESTIONS


def _questions(project: Path, given: Path | None) -> Path:
    """The questions of the project: yours, or a file to fill in."""
    if given is None:
        empty = project / "questions.csv"
        empty.write_text(HEADER, "utf-8")
        return empty
    return Path(shutil.copyfile(given, project / f"questions{given.suffix.lower()}"))


def _write_flow(path: Path, store: Path, models: ModelOptions) -> None:
    """The flow that a search of the store takes by default, to be changed."""
    parts = parts_of(str(store), RerankOptions(**_shared(models)))
    path.write_text(dump(flow_of("default", parts)[0], parts.given()), "utf-8")


def _profile(llm: str, model: str, think: int, models: ModelOptions) -> str:
    """`spolia.toml`: the store, and the models that were named."""
    lines = ['store = "store"']
    for table, url, name in (("llm", llm, model), ("embedder", models.embedder, models.embed_model)):
        if url:
            lines += ["", f"[{table}]", f"url = {json_text(url)}", *([f"model = {json_text(name)}"] if name else [])]
            lines += [f"thought_tokens = {think}"] if think and table == "llm" else []
    return "\n".join(lines) + "\n"
