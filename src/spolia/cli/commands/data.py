"""`spolia data`: what a data set holds, and in which form it is written; `spolia world`: an invented one."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING, Annotated, Any

from spolia.cli.exit_codes import Exit
from spolia.cli.experiments import make_experiments_folder
from spolia.cli.options import AsJson
from spolia.cli.parameters import argument, option, subcommands
from spolia.cli.screen import Screen, table
from spolia.core.plurals import several
from spolia.errors import DataError
from spolia.evaluation.data.dataset import DataSet, count_parts
from spolia.evaluation.data.formats.form import Form, form_named
from spolia.evaluation.data.quotes import join_passages, locate_passages, with_quotes
from spolia.evaluation.data.usage_log import UsageLog, marks_of
from spolia.evaluation.experiment.comparison import TYPE, fields_of, kinds_of
from spolia.evaluation.simulation.world import FictionalWorld

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from spolia.types import Document, Item

MAX_LISTED = 40
"""Kinds and fields of one row that are named."""
FORMS = "spolia, beir, autorag, trec, 2wikimultihopqa, hotpotqa, musique, table"
Set = Annotated[Path, argument("DATA", f"A data set, a folder or a file: {FORMS}.")]
From = Annotated[str, option("--from FORM", "The form of DATA; by default it is detected.")]


def show(source: Set, form: From = "", json: AsJson = False) -> Exit:
    """Read a whole data set, report what it holds, and list every fault."""
    screen, data_set = Screen(json=json), _open_data(source, form)
    passages, items = _read_all(data_set)
    summary = _summarise(data_set, passages, items)
    doubts = list(_find_doubts(data_set, passages, items))
    screen.give(**summary, columns=dict(data_set.file_form.columns(source)), warnings=doubts)
    rows = (
        (_LINES.get(name, name.replace("_", " ")), _format_counts(value) if isinstance(value, dict) else f"{value:,}")
        for name, value in list(summary.items())[2:]
    )
    screen.show(f"{data_set.name}, in the form {data_set.file_form.name}", table(rows))
    if data_set.columns:
        screen.show(data_set.columns)
    for doubt in doubts:
        screen.say(doubt, "yellow")
    return Exit.DONE


def convert(
    source: Set,
    target: Annotated[Path, argument("TARGET", "The new folder or file.")],
    to: Annotated[str, option("--to FORM", f"One of: {FORMS}.")] = "spolia",
    form: From = "",
    quotes: Annotated[bool, option("--quotes", "Turn gold into quotes: sentences, answers or passages.")] = False,
    join: Annotated[
        str,
        option(
            "--join FIELD", "Join passages that share a `title` or metadata field into documents; gold becomes quotes."
        ),
    ] = "",
    onto: Annotated[
        Path | None, option("--onto DATA", "Turn gold into quotes of the documents of another data set.")
    ] = None,
    json: AsJson = False,
) -> Exit:
    """Write a data set in another form. Gold quotes stay right however documents are split."""
    screen, data_set = Screen(json=json), _open_data(source, form)
    target_form = form_named(to)
    if target.exists():
        raise DataError(f"{target} already exists. Write another path.")
    if join and onto is not None:
        raise DataError("--join makes the documents, and --onto names them. Write one of the two.")
    passages, items = _read_all(data_set)
    if quotes:
        items = list(with_quotes(items, {passage.id: passage.text for passage in passages}))
    if join or onto is not None:
        passages, items = _relocate_gold(passages, items, join, onto)
    lost = _write(target_form, target, passages, items)
    screen.give(target=str(target), form=to, passages=len(passages), questions=len(items), lost=lost)
    contents = f"{several(len(passages), 'passage')} and {several(len(items), 'question')}"
    screen.show(f"{target} is written: {contents}, in the form {to}.")
    if lost:
        losses = ", ".join(f"{kind} ({number:,})" for kind, number in lost.items())
        screen.show(f"Read again, these are left out or not as they were: {losses}. The form spolia keeps everything.")
    return Exit.DONE


def looks(
    source: Set,
    form: From = "",
    forget: Annotated[bool, option("--forget", "Delete these log entries, if no flow was selected on them.")] = False,
    json: AsJson = False,
) -> Exit:
    """List the experiments that used the questions of a data set: `eval` does not report on questions that a flow was
    tuned on.

    Kept in looks.jsonl beside the data; of data that cannot be written to, in experiments/ of the cache directory
    (SPOLIA_CACHE, else ~/.cache/spolia). An experiment with several flows, or with --split, is a look at the questions
    that it asked. Of fewer than 100 questions `eval` reports all the same, with a warning.
    """
    screen = Screen(json=json)
    data = marks_of(_open_data(source, form).items(stored=True))  # whatever their gold names
    usage_log = UsageLog.for_data(source, make_experiments_folder(), data)
    entries, path = usage_log.entries(data), usage_log.path
    if forget:
        usage_log.forget(data)
    rows = [{"at": entry.at, "part": entry.part, "questions": len(entry.asked) or None} for entry in entries]
    listed = [row | {"flows": [name for name, _ in entry.flows]} for row, entry in zip(rows, entries, strict=True)]
    screen.give(looks=listed, file=str(path), forgotten=forget)
    screen.show(*map(str, entries), f"{several(len(entries), 'look')} in {path}{', struck out' * forget}")
    return Exit.DONE


def _open_data(source: Path, form: str) -> DataSet:
    return DataSet(str(source), form=form)


def _read_all(data_set: DataSet) -> tuple[list[Document], list[Item]]:
    """Read all passages and questions, so that every row is checked; raise DataError for the first mistake."""
    passages = list(data_set.passages()) if data_set.has_corpus else []
    items = list(data_set.items())
    if not items:
        raise DataError(f"{data_set.path} has no questions. Write at least one.")
    return passages, items


def _write(form: Form, target: Path, passages: Sequence[Document], items: Sequence[Item]) -> dict[str, int]:
    """Write the whole data set or nothing; return what the form has no place for."""
    # Written beside its place and renamed at the end, so that an error leaves nothing at the target.
    part = target.with_name(f".{target.name}.part")
    try:
        lost = form.write(part, passages, items)
        part.rename(target)
        return lost
    finally:
        # The form has written a file or a folder; after the rename neither is there.
        if part.is_file():
            part.unlink()
        rmtree(part, ignore_errors=True)


def _relocate_gold(
    passages: Sequence[Document], items: Iterable[Item], join: str, onto: Path | None
) -> tuple[list[Document], list[Item]]:
    relocated = (
        locate_passages(passages, _open_data(onto, "").passages())
        if onto is not None
        else join_passages(passages, join)
    )
    return list(relocated.documents), [relocated.item(item) for item in items]


def _summarise(data_set: DataSet, passages: Sequence[Document], items: Sequence[Item]) -> dict[str, Any]:
    characters = sorted(len(passage.text) for passage in passages)
    return {
        "name": data_set.name,
        "form": data_set.file_form.name,
        "passages": len(passages),
        "characters": {"median": characters[len(characters) // 2], "longest": characters[-1]} if characters else {},
        "questions": len(items),
        "with_gold": sum(bool(item.gold) for item in items),
        "with_quotes": sum(bool(item.quotes) for item in items),
        "with_answers": sum(bool(item.answers) for item in items),
        "with_decomposition": sum(bool(item.decomposition) for item in items),
        "types": dict(Counter(kind for item in items for kind in kinds_of(item, TYPE)).most_common()),
        "fields": dict(sorted(Counter(name for item in items for name in fields_of(item)).items())),
        "groups": dict(sorted(Counter(len(item.gold) for item in items).items())),
        "parts": count_parts(item.id for item in items),
    }


def _find_doubts(data_set: DataSet, passages: Sequence[Document], items: Sequence[Item]) -> Iterator[str]:
    """Yield doubts about readable data that is probably a mistake."""
    if not data_set.has_corpus:
        yield "No corpus.jsonl: ask these questions of a store that has their gold (--store STORE)."
    for problem, ids in (
        ("questions without a text, which will fail", [item.id for item in items if not item.question.strip()]),
        (
            "passages without a text, which no search finds",
            [passage.id for passage in passages if not passage.text.strip()],
        ),
    ):
        if ids:
            yield f"{len(ids):,} {problem}: the first is {ids[0]!r}."
    for field, times in data_set.file_form.unread(Path(data_set.path)).items():
        location = f"{field}, in {several(times, 'row')}, is read by nothing."
        yield f"{location} docs/reference/data_sets.md has the fields; others go in meta."


_LINES = {
    "characters": "characters of a passage",
    "with_gold": "questions with gold",
    "with_quotes": "questions with quotes as gold",
    "with_answers": "questions with answers",
    "with_decomposition": "questions with decomposition",
    "types": "questions by type",
    "fields": "questions by metadata field",
    "groups": "questions by number of gold",
    "parts": "questions by part",
}
"""What a number is called on the screen."""


def _format_counts(counts: dict[Any, int]) -> str:
    if not counts:
        return "none"
    entries = [f"{key if key != '' else 'none stated'}: {number:,}" for key, number in counts.items()]
    rest = f", and {len(entries) - MAX_LISTED:,} more (--json has all)" if len(entries) > MAX_LISTED else ""
    return ", ".join(entries[:MAX_LISTED]) + rest


data = subcommands("data", "Data sets: show, convert, looks.", show=show, convert=convert, looks=looks)


def world(
    out: Annotated[Path, argument("FOLDER", "Where to write corpus.jsonl and questions.jsonl.")],
    seed: Annotated[int, option("--seed", "The same seed gives the same files.")] = 0,
    people: Annotated[int, option("--people", "How many; the whole world grows with them.", min=20)] = 500,
    questions: Annotated[int, option("--questions", "How many are drawn.", min=0)] = 300,
    variant: Annotated[
        str,
        option("--variant NAME", "`split`: half of the documents are in a second source; `contradicting`: all are."),
    ] = "",
    json: AsJson = False,
) -> Exit:
    """Write a data set of invented people, towns, companies and works, with questions of one to six hops."""
    screen = Screen(json=json)
    fictional_world = FictionalWorld(seed, people, questions, variant)  # type: ignore[arg-type]  # refused there
    digest = fictional_world.write(out, replace=False)
    screen.give(sha256=digest, path=str(out), questions=questions)
    screen.write(f"{out}: {questions} questions, sha256 {digest}")
    return Exit.DONE
