"""Folders and sources as the command line names them, brought into a store."""

import os
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from fnmatch import fnmatchcase
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

from spolia.cli.destinations import TEXTS, destination, tell_of_groups
from spolia.cli.metadata import fields_of
from spolia.cli.options import MAIN
from spolia.cli.parameters import written
from spolia.cli.readers import readers_of
from spolia.cli.results import unmade_data
from spolia.cli.screen import Renderable, Screen, one_line, text
from spolia.cli.store_options import StoreOptions
from spolia.cli.user_modules import own
from spolia.errors import ManifestMismatch, MissingExtra, QueryError, WeightsError, without_name
from spolia.flow_files.built_in_flows import covers
from spolia.indexing.readers.registry import Readers, by_suffix
from spolia.indexing.sources.source import Source
from spolia.indexing.sync.files import walk
from spolia.indexing.sync.groups import main_definition, samples
from spolia.indexing.sync.prefetch import open_prefetch
from spolia.indexing.sync.report import DocumentReport, Progress, SyncReport, reports
from spolia.indexing.sync.sync import sync
from spolia.models.http.remote import Remote
from spolia.models.onnx.minilm import MiniLM
from spolia.models.onnx.weights import find
from spolia.models.protocols import Embedder, SparseEmbedder
from spolia.stores.corpus import Corpus
from spolia.stores.definition import Definition, Embedding, Transform
from spolia.stores.manifest import Manifest, signature, transform_of

EVERYBODY = "everybody"
_MEANT = {"everyone", "anybody", "anyone", "all", "public", "*"}
"""What people write for it; as names of a group they would shut out whom they mean to let in."""
AccessRule: TypeAlias = tuple[str, tuple[str, ...]]


def access_of(file: Path | None) -> Callable[[str], tuple[str, ...]] | None:
    """Who may read a file, by its uri, as `sync(access=…)` takes it; it refuses a uri that no pattern fits.

    The file has a line for each pattern of paths, `hr/* = ann, staff` or `* = everybody`; the first that fits counts.
    """
    if file is None:
        return None
    rules = list(_rules(file))

    def readers(uri: str) -> tuple[str, ...]:
        for pattern, principals in rules:
            if fnmatchcase(uri, pattern):
                return principals
        raise QueryError(
            f"{file} does not say who may read {uri!r}. Add a line for it; "
            f"`* = {EVERYBODY}` as the last one opens all that is not named."
        )

    return readers


def _rules(file: Path) -> Iterator[AccessRule]:
    try:
        lines = file.read_text("utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise QueryError(
            f"{file} cannot be read: {reason}. Name a text file with lines like: hr/* = ann, staff"
        ) from error
    for number, line in enumerate(lines, 1):
        if line.strip() and not line.lstrip().startswith("#"):
            yield _rule(line, f"{file}, line {number}")


def _rule(line: str, where: str) -> AccessRule:
    pattern, _, listed = (part.strip() for part in line.partition("="))
    principals = tuple(name.strip() for name in listed.split(","))
    if not pattern or not all(principals):
        raise QueryError(
            f"{where}: {line.strip()!r:.80} is not a valid line of readers. Write PATTERN = PRINCIPAL, PRINCIPAL; "
            f"or PATTERN = {EVERYBODY}."
        )
    if meant := [name for name in principals if name.casefold() in _MEANT]:
        raise QueryError(
            f"{where}: {meant[0]!r} would be a user or group of that name. Write {EVERYBODY}, or give it another name."
        )
    if EVERYBODY in principals and len(principals) > 1:
        raise QueryError(f"{where}: {EVERYBODY!r} cannot be combined with others. Write it alone, or leave it out.")
    return pattern, () if principals == (EVERYBODY,) else principals


SAMPLED_FILES = 20


def index_folder(
    screen: Screen,
    making: StoreOptions,
    *,
    rebuild: bool = False,
    retry: bool = True,
    wait_s: float | None = None,
    tell: Callable[[Progress], None] = lambda now: None,
) -> tuple[SyncReport, str]:
    """Index what has changed in folders and sources: the report, and in one line why there are vectors or none."""
    corpus = Corpus(making.store)
    given, chosen = parts(screen, making, corpus, rebuild=rebuild)
    embeds = given["embedder"] is not None
    with screen.progress("reading") as told:

        def progress(now: Progress) -> None:
            tell(now)
            if embeds and now.done >= now.total:  # all files are read, their passages are not all embedded
                told(now.embedded, max(now.chunks, now.embedded), "embedding passages")
            else:
                told(now.done, now.total, "reading files")

        try:
            report = sync(**given, corpus=corpus, progress=progress, retry=retry, timeout_s=wait_s, rebuild=rebuild)
        except ManifestMismatch as error:
            raise ManifestMismatch(
                f"{error} What that would take: {command('plan', making)}; to do it: "
                f"{command('sync', making)} --rebuild"
            ) from error
    return report, chosen


def command(name: str, making: StoreOptions) -> str:
    return shlex.join(["spolia", name, *written(making)])


def parts(screen: Screen, making: StoreOptions, corpus: Corpus, *, rebuild: bool) -> tuple[dict[str, Any], str]:
    """The arguments of `sync` and `planned`, and in one line why there are vectors or none."""
    places, mine = making.places(), own(making.known)
    embedder = making.embeds_by(corpus, rebuild=rebuild)
    defined = {**mine.groups, **making.definitions(embedder, mine.operators)}
    main = defined.pop(MAIN, None)
    given = {**defined, **({MAIN: main} if main else {})}
    stored = corpus.snapshot().manifests if corpus.exists() else {}
    is_redacted = corpus.exists() and any("-redacted-" in one for one in corpus.snapshot().reader_versions())
    if is_redacted and not making.redact and not rebuild:
        raise QueryError(
            f"Documents of {corpus.path} were indexed with --redact, and without it all of their text would be stored. "
            "Write --redact as before, or --rebuild to store it."
        )
    tell_of_groups(screen, given.values(), [stored[name] for name in stored if name not in given], mine.operators)
    paths = [one for one in places if isinstance(one, Path)]
    found: dict[str, Any] = {
        "sources": paths[0] if places == paths[:1] else places,
        "group": MAIN,
        "groups": [corpus.group(name, definition) for name, definition in defined.items()],
        "fields": fields_of(making.fields),
        "access": access_of(making.readers),
        "known": mine.operators,
        "readers": readers_of(making.known, making.redact),
        "workers": making.workers,
        "limits": making.limits,
        "follow_links": making.follow_links,
    }
    if main is not None:
        found |= {"splitter": main.transform, "analyzer": main.analyzer}
    if main is not None and main.embeddings:
        found["embedder"] = _only_embedder(main, making)
        return found, f"with vectors of {found['embedder'].name}"
    why = "" if making.vectors else why_none(corpus, found, embedder, making, rebuild=rebuild)
    found["embedder"] = None if why else embedder
    if isinstance(found["embedder"], Remote) and (rebuild or MAIN not in stored):  # of a stored one it was said above
        screen.say(destination(found["embedder"], TEXTS))
    if main is None and not rebuild:
        found["splitter"] = _splitter_of(corpus, found["embedder"], mine.operators)
    return found, f"without vectors: {why}" if why else f"with vectors of {embedder.name}"


def _only_embedder(main: Definition, making: StoreOptions) -> Embedder | SparseEmbedder:
    """The embedder of the group that every store has, which is embedded in one way."""
    first = main.embeddings[0]
    if making.vectors is False or main.embeddings != (Embedding(first.embedder),):
        raise QueryError(
            f"{making.groups}: {MAIN} is embedded by one embedder, with the index and metric that are usual, and not "
            "with --no-vectors. For other embeddings define a further group: NAME: {transform: …, embeddings: […]}."
        )
    return first.embedder


def why_none(
    corpus: Corpus, given: Mapping[str, Any], embedder: Embedder, making: StoreOptions, *, rebuild: bool
) -> str:
    """Why nothing is to be embedded; nothing when it is. Of sources that are no folders nothing is known before."""
    if making.vectors is False:
        return "--no-vectors"
    if not rebuild and (built := _built(corpus)) is not None:
        how = f"with {built.embedder}" if built.embedder else "without"
        return "" if built.embedder == embedder.name else f"the store was built {how}"
    if making.embedder or not isinstance(embedder, MiniLM):
        return ""
    try:
        find(making.weights)
        return covers(texts, embedder) if (texts := list(_samples(given["sources"], given["readers"]))) else ""
    except MissingExtra as error:
        return str(error)
    except WeightsError as error:
        if making.weights or os.environ.get("SPOLIA_WEIGHTS"):  # named by the user, so not to be passed over
            raise
        return str(error)


def _splitter_of(corpus: Corpus, embedder: Embedder | None, known: tuple[Any, ...]) -> Transform | None:
    """The splitter of a store's documents, which stays unless you name another; None for the default."""
    built = _built(corpus)
    if built is None or not built.definition:
        return None
    usual = signature(main_definition(None, embedder, None), {})
    return None if built.signature == usual else transform_of(built, known)


def _built(corpus: Corpus) -> Manifest | None:
    return corpus.snapshot().manifests.get(MAIN) if corpus.exists() else None


def _samples(places: Path | Sequence[Path | Source], readers: Readers) -> Iterator[str]:
    """The beginnings of some documents from all over some folders."""
    paths = places if isinstance(places, Path) else [one for one in places if isinstance(one, Path)]
    if not paths:
        return
    with TemporaryDirectory(prefix="spolia-") as spool, open_prefetch(Path(spool), 1) as prefetch:
        yield from samples(walk(paths, by_suffix(readers)), prefetch, SAMPLED_FILES)


SHOWN, NAMED, SUFFIXES = 10, 3, 8


def report_data(report: SyncReport, warnings: list[tuple[str, str]]) -> dict[str, Any]:
    counts = ("generation", "added", "changed", "moved", "removed", "unchanged", "warned", "chunks", "embedded")
    return {
        **{name: getattr(report, name) for name in counts},
        "seconds": report.seconds,
        "failed": [{"uri": uri, "reason": reason} for uri, reason in report.failed],
        "unmade": unmade_data(report.unmade),
        "behind": [{"group": group, "reason": reason} for group, reason in report.behind],
        "fields": list(report.fields),
        "damaged": list(report.damaged),
        "warnings": [{"uri": uri, "warning": said} for uri, said in warnings],
        "skipped": [{"uri": item.uri, "reason": item.reason} for item in report.skipped],
        "unread": dict(report.unread),
    }


def document_data(store: str) -> dict[str, dict[str, Any]]:
    """The report of every document as plain data, by file."""
    return {uri: asdict(one) for uri, _, one in reports_of(store)}


def reports_of(store: str) -> list[tuple[str, str, DocumentReport]]:
    return [(uri, "indexed", one) for uri, one in sorted(reports(Corpus(str(store))).items())]


def report_text(report: SyncReport, store: str, warnings: list[tuple[str, str]]) -> Renderable:
    """A report for people: what changed, what failed, what was read with a warning, what was left out."""
    told = text(store, "bold")
    told.append(f"  {report}", "not bold")
    for label, style, rows in _troubles(report, warnings, store):
        told.append(f"\n{len(rows)} {label}", style)
        reasons = _by_reason(rows)
        for reason, uris in reasons[:SHOWN]:
            told.append(f"\n  {_few(uris)}", "bold").append(f"  {one_line(reason, 300)}", "not bold")
        if hidden := sum(len(uris) for _, uris in reasons[SHOWN:]):
            told.append(f"\n  … and {hidden} more; --json lists all", "not bold dim")
    for said in report.fields:
        told.append(f"\n{one_line(said, 400)}", "yellow")
    if report.unread:
        kinds = ", ".join(
            f"{count} {one_line(suffix) or 'without suffix'}" for suffix, count in report.unread[:SUFFIXES]
        )
        rest = sum(count for _, count in report.unread[SUFFIXES:])
        told.append(f"\nnot read: {kinds}{f', {rest} others' if rest else ''}", "not bold dim")
    return told


def _by_reason(rows: Sequence[tuple[str, str]]) -> list[tuple[str, list[str]]]:
    """Group files by their reason, so that a folder of scans does not say the same for each.

    >>> _by_reason([("a.png", "No OCR."), ("b.pdf", "b.pdf is locked."), ("c.png", "No OCR.")])
    [('No OCR.', ['a.png', 'c.png']), ('is locked.', ['b.pdf'])]
    >>> _by_reason([("index damaged", ""), ("vectors damaged", "")])
    [('', ['index damaged']), ('', ['vectors damaged'])]
    """
    found: dict[tuple[str, str], list[str]] = {}
    for uri, reason in rows:
        found.setdefault((without_name(uri, reason), "" if reason else uri), []).append(uri)
    return [(reason, uris) for (reason, _), uris in found.items()]


def _few(uris: Sequence[str]) -> str:
    """Name the first files of a list, and count the others.

    >>> _few("abc"), _few("abcde")
    ('a, b, c', 'a, b, c and 2 more')
    """
    more = f" and {len(uris) - NAMED} more" if len(uris) > NAMED else ""
    return ", ".join(map(one_line, uris[:NAMED])) + more


def warnings_of(report: SyncReport, store: str) -> list[tuple[str, str]]:
    """What the store's documents were read with, by file: those without any text first."""
    if not report.warned:
        return []
    found = [(uri, " ".join(one.warnings), one.chunks) for uri, one in reports(Corpus(str(store))).items()]
    return [(uri, said) for uri, said, _ in sorted(found, key=lambda row: (row[2] > 0, row[0])) if said]


def _troubles(
    report: SyncReport, warnings: list[tuple[str, str]], store: str
) -> list[tuple[str, str, list[tuple[str, str]]]]:
    found = [
        ("damaged; write: spolia repair --store " + store, "bold red", [(said, "") for said in report.damaged]),
        ("failed:", "bold red", list(report.failed)),
        ("not in a group:", "bold red", [(lack.uri, f"{lack.group}: {lack.reason}") for lack in report.unmade]),
        ("not kept in step:", "bold red", [(f"group {group}", reason) for group, reason in report.behind]),
        ("read with a warning:", "yellow", warnings),
        ("left out:", "yellow", [(item.uri, item.reason) for item in report.skipped]),
    ]
    return [trouble for trouble in found if trouble[2]]
