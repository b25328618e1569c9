"""Folders and sources as the command line names them, brought into a store."""

import os
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from fnmatch import fnmatchcase
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

from spolia.cli.destinations import PASSAGES_SENT, describe_destination, print_group_servers
from spolia.cli.metadata import parse_fields
from spolia.cli.options import MAIN
from spolia.cli.parameters import format_options
from spolia.cli.readers import build_readers
from spolia.cli.results import unmade_data
from spolia.cli.screen import Renderable, Screen, one_line, text
from spolia.cli.store_options import StoreOptions
from spolia.cli.user_modules import load_user_modules
from spolia.errors import ManifestMismatch, MissingExtra, QueryError, WeightsError, strip_name
from spolia.flow_files.built_in_flows import find_language_gap
from spolia.indexing.readers.registry import Readers, by_suffix
from spolia.indexing.sources.source import Source
from spolia.indexing.sync.files import walk
from spolia.indexing.sync.groups import main_definition, sample_texts
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


def read_access(file: Path | None) -> Callable[[str], tuple[str, ...]] | None:
    """Return a function that tells who may read a file, by its uri, as `sync(access=…)` takes it; it refuses a uri that
    no pattern fits.

    The file has a line for each pattern of paths, `hr/* = ann, staff` or `* = everybody`; the first that fits counts.
    """
    if file is None:
        return None
    rules = list(_read_rules(file))

    def readers(uri: str) -> tuple[str, ...]:
        for pattern, principals in rules:
            if fnmatchcase(uri, pattern):
                return principals
        raise QueryError(
            f"{file} does not say who may read {uri!r}. Add a line for it; "
            f"`* = {EVERYBODY}` as the last one opens all that is not named."
        )

    return readers


def _read_rules(file: Path) -> Iterator[AccessRule]:
    try:
        # Some editors begin a text file with a byte order mark.
        lines = file.read_text("utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise QueryError(
            f"{file} cannot be read: {reason}. Name a text file with lines like: hr/* = ann, staff"
        ) from error
    for number, line in enumerate(lines, 1):
        if line.strip() and not line.lstrip().startswith("#"):
            yield _parse_rule(line, f"{file}, line {number}")


def _parse_rule(line: str, place: str) -> AccessRule:
    pattern, _, listed = (part.strip() for part in line.partition("="))
    principals = tuple(name.strip() for name in listed.split(","))
    if not pattern or not all(principals):
        raise QueryError(
            f"{place}: {line.strip()!r:.80} is not a valid line of readers. Write PATTERN = PRINCIPAL, PRINCIPAL; "
            f"or PATTERN = {EVERYBODY}."
        )
    if meant := [name for name in principals if name.casefold() in _MEANT]:
        raise QueryError(
            f"{place}: {meant[0]!r} would be a user or group of that name. Write {EVERYBODY}, or give it another name."
        )
    if EVERYBODY in principals and len(principals) > 1:
        raise QueryError(f"{place}: {EVERYBODY!r} cannot be combined with others. Write it alone, or leave it out.")
    return pattern, () if principals == (EVERYBODY,) else principals


SAMPLED_FILES = 20


def index_folder(
    screen: Screen,
    options: StoreOptions,
    *,
    rebuild: bool = False,
    retry: bool = True,
    wait_s: float | None = None,
    tell: Callable[[Progress], None] = lambda now: None,
) -> tuple[SyncReport, str]:
    """Index what has changed in folders and sources: the report, and in one line why there are vectors or none."""
    corpus = Corpus(options.store)
    arguments, chosen = build_sync_arguments(screen, options, corpus, rebuild=rebuild)
    embeds = arguments["embedder"] is not None
    with screen.progress("reading") as on_progress:

        def progress(now: Progress) -> None:
            tell(now)
            if embeds and now.done >= now.total:  # all files are read, their passages are not all embedded
                on_progress(now.embedded, max(now.chunks, now.embedded), "embedding passages")
            else:
                on_progress(now.done, now.total, "reading files")

        try:
            report = sync(**arguments, corpus=corpus, progress=progress, retry=retry, timeout_s=wait_s, rebuild=rebuild)
        except ManifestMismatch as error:
            raise ManifestMismatch(
                f"{error} What that would take: {format_command('plan', options)}; to do it: "
                f"{format_command('sync', options)} --rebuild"
            ) from error
    return report, chosen


def format_command(name: str, options: StoreOptions) -> str:
    return shlex.join(["spolia", name, *format_options(options)])


def build_sync_arguments(
    screen: Screen, options: StoreOptions, corpus: Corpus, *, rebuild: bool
) -> tuple[dict[str, Any], str]:
    """Build the arguments of `sync` and `planned`, and say in one line why there are vectors or none."""
    places, user_modules = options.places(), load_user_modules(options.modules)
    embedder = options.choose_embedder(corpus, rebuild=rebuild)
    defined = {**user_modules.groups, **options.definitions(embedder, user_modules.operators)}
    main = defined.pop(MAIN, None)
    groups_by_name = {**defined, **({MAIN: main} if main else {})}
    stored = corpus.snapshot().manifests if corpus.exists() else {}
    is_redacted = corpus.exists() and any("-redacted-" in version for version in corpus.snapshot().reader_versions())
    if is_redacted and not options.redact and not rebuild:
        raise QueryError(
            f"Documents of {corpus.path} were indexed with --redact, and without it all of their text would be stored. "
            "Write --redact as before, or --rebuild to store it."
        )
    print_group_servers(
        screen,
        groups_by_name.values(),
        [stored[name] for name in stored if name not in groups_by_name],
        user_modules.operators,
    )
    paths = [place for place in places if isinstance(place, Path)]
    arguments: dict[str, Any] = {
        "sources": paths[0] if places == paths[:1] else places,
        "group": MAIN,
        "groups": [corpus.group(name, definition) for name, definition in defined.items()],
        "fields": parse_fields(options.fields),
        "access": read_access(options.readers),
        "operators": user_modules.operators,
        "readers": build_readers(options.modules, options.redact),
        "workers": options.workers,
        "limits": options.limits,
        "follow_links": options.follow_links,
    }
    if main is not None:
        arguments |= {"splitter": main.transform, "analyzer": main.analyzer}
    if main is not None and main.embeddings:
        arguments["embedder"] = _only_embedder(main, options)
        return arguments, f"with vectors of {arguments['embedder'].name}"
    reason = "" if options.vectors else explain_no_vectors(corpus, arguments, embedder, options, rebuild=rebuild)
    arguments["embedder"] = None if reason else embedder
    if isinstance(arguments["embedder"], Remote) and (
        rebuild or MAIN not in stored
    ):  # of a stored one it was said above
        screen.say(describe_destination(arguments["embedder"], PASSAGES_SENT))
    if main is None and not rebuild:
        arguments["splitter"] = _stored_splitter(corpus, arguments["embedder"], user_modules.operators)
    return arguments, f"without vectors: {reason}" if reason else f"with vectors of {embedder.name}"


def _only_embedder(main: Definition, options: StoreOptions) -> Embedder | SparseEmbedder:
    """Return the embedder of the group that every store has, which is embedded in one way."""
    first = main.embeddings[0]
    if options.vectors is False or main.embeddings != (Embedding(first.embedder),):
        raise QueryError(
            f"{options.groups}: {MAIN} is embedded by one embedder, with the index and metric that are usual, and not "
            "with --no-vectors. For other embeddings define a further group: NAME: {transform: …, embeddings: […]}."
        )
    return first.embedder


def explain_no_vectors(
    corpus: Corpus, arguments: Mapping[str, Any], embedder: Embedder, options: StoreOptions, *, rebuild: bool
) -> str:
    """Explain why nothing is embedded; empty if something is. Sources other than folders are unknown beforehand."""
    if options.vectors is False:
        return "--no-vectors"
    if not rebuild and (built := _main_manifest(corpus)) is not None:
        embedding_text = f"with {built.embedder}" if built.embedder else "without"
        return "" if built.embedder == embedder.name else f"the store was built {embedding_text}"
    if options.embedder or not isinstance(embedder, MiniLM):
        return ""
    try:
        find(options.weights)
        return (
            find_language_gap(texts, embedder)
            if (texts := list(_samples(arguments["sources"], arguments["readers"])))
            else ""
        )
    except MissingExtra as error:
        return str(error)
    except WeightsError as error:
        if options.weights or os.environ.get("SPOLIA_WEIGHTS"):  # named by the user, so not to be passed over
            raise
        return str(error)


def _stored_splitter(corpus: Corpus, embedder: Embedder | None, known_operators: tuple[Any, ...]) -> Transform | None:
    """Return the splitter of a store's documents, which stays unless you name another; None for the default."""
    built = _main_manifest(corpus)
    if built is None or not built.definition:
        return None
    usual = signature(main_definition(None, embedder, None), {})
    return None if built.signature == usual else transform_of(built, known_operators)


def _main_manifest(corpus: Corpus) -> Manifest | None:
    return corpus.snapshot().manifests.get(MAIN) if corpus.exists() else None


def _samples(places: Path | Sequence[Path | Source], readers: Readers) -> Iterator[str]:
    """Yield the beginnings of some documents from all over some folders."""
    paths = places if isinstance(places, Path) else [place for place in places if isinstance(place, Path)]
    if not paths:
        return
    with TemporaryDirectory(prefix="spolia-") as spool, open_prefetch(Path(spool), 1) as prefetch:
        yield from sample_texts(walk(paths, by_suffix(readers)), prefetch, SAMPLED_FILES)


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
        "warnings": [{"uri": uri, "warning": warning} for uri, warning in warnings],
        "skipped": [{"uri": item.uri, "reason": item.reason} for item in report.skipped],
        "unread": dict(report.unread),
    }


def document_data(store: str) -> dict[str, dict[str, Any]]:
    """Return the report of every document as plain data, by file."""
    return {uri: asdict(document_report) for uri, _, document_report in reports_of(store)}


def reports_of(store: str) -> list[tuple[str, str, DocumentReport]]:
    return [(uri, "indexed", document_report) for uri, document_report in sorted(reports(Corpus(str(store))).items())]


def format_report(report: SyncReport, store: str, warnings: list[tuple[str, str]]) -> Renderable:
    """Format a report for people: what changed, what failed, what was read with a warning, what was left out."""
    summary = text(store, "bold")
    summary.append(f"  {report}", "not bold")
    for label, style, rows in _list_troubles(report, warnings, store):
        summary.append(f"\n{len(rows)} {label}", style)
        reasons = _group_by_reason(rows)
        for reason, uris in reasons[:SHOWN]:
            summary.append(f"\n  {_name_first(uris)}", "bold").append(f"  {one_line(reason, 300)}", "not bold")
        if hidden := sum(len(uris) for _, uris in reasons[SHOWN:]):
            summary.append(f"\n  … and {hidden} more; --json lists all", "not bold dim")
    for note in report.fields:
        summary.append(f"\n{one_line(note, 400)}", "yellow")
    if report.unread:
        kinds = ", ".join(
            f"{count} {one_line(suffix) or 'without suffix'}" for suffix, count in report.unread[:SUFFIXES]
        )
        rest = sum(count for _, count in report.unread[SUFFIXES:])
        summary.append(f"\nnot read: {kinds}{f', {rest} others' if rest else ''}", "not bold dim")
    return summary


def _group_by_reason(rows: Sequence[tuple[str, str]]) -> list[tuple[str, list[str]]]:
    """Group files by their reason, so that a folder of scans does not say the same for each.

    >>> _group_by_reason([("a.png", "No OCR."), ("b.pdf", "b.pdf is locked."), ("c.png", "No OCR.")])
    [('No OCR.', ['a.png', 'c.png']), ('is locked.', ['b.pdf'])]
    >>> _group_by_reason([("index damaged", ""), ("vectors damaged", "")])
    [('', ['index damaged']), ('', ['vectors damaged'])]
    """
    uris_by_reason: dict[tuple[str, str], list[str]] = {}
    for uri, reason in rows:
        uris_by_reason.setdefault((strip_name(uri, reason), "" if reason else uri), []).append(uri)
    return [(reason, uris) for (reason, _), uris in uris_by_reason.items()]


def _name_first(uris: Sequence[str]) -> str:
    """Name the first files of a list, and count the others.

    >>> _name_first("abc"), _name_first("abcde")
    ('a, b, c', 'a, b, c and 2 more')
    """
    rest = f" and {len(uris) - NAMED} more" if len(uris) > NAMED else ""
    return ", ".join(map(one_line, uris[:NAMED])) + rest


def list_warnings(report: SyncReport, store: str) -> list[tuple[str, str]]:
    """Return the warnings of the store's documents by file; documents without any text come first."""
    if not report.warned:
        return []
    rows = [
        (uri, " ".join(document_report.warnings), document_report.chunks)
        for uri, document_report in reports(Corpus(str(store))).items()
    ]
    return [(uri, warning) for uri, warning, _ in sorted(rows, key=lambda row: (row[2] > 0, row[0])) if warning]


def _list_troubles(
    report: SyncReport, warnings: list[tuple[str, str]], store: str
) -> list[tuple[str, str, list[tuple[str, str]]]]:
    troubles = [
        ("damaged; write: spolia repair --store " + store, "bold red", [(damage, "") for damage in report.damaged]),
        ("failed:", "bold red", list(report.failed)),
        ("not in a group:", "bold red", [(lack.uri, f"{lack.group}: {lack.reason}") for lack in report.unmade]),
        ("not kept in step:", "bold red", [(f"group {group}", reason) for group, reason in report.behind]),
        ("read with a warning:", "yellow", warnings),
        ("left out:", "yellow", [(item.uri, item.reason) for item in report.skipped]),
    ]
    return [trouble for trouble in troubles if trouble[2]]
