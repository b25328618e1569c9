"""`spolia doctor`: checks of what is installed, which weights exist, and whether a store is sound; `spolia repair`."""

import platform
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

from spolia import record_files
from spolia.cli.exit_codes import Exit
from spolia.cli.model_profile import load_profile
from spolia.cli.options import (
    WAIT_S,
    AllowEnv,
    AsJson,
    Known,
    MaybeStore,
    ProfileFile,
    Redact,
    StorePath,
    Wait,
    WeightsFolder,
)
from spolia.cli.parameters import argument, option
from spolia.cli.readers import build_readers
from spolia.cli.screen import Renderable, Screen, table, text
from spolia.cli.user_modules import load_user_modules
from spolia.cli.written_files import STORE_FILES, damaged_elsewhere, damaged_files, mend_files
from spolia.core.plurals import several
from spolia.deferred import metadata
from spolia.errors import QueryError, SpoliaError, StoreCorrupt, StoreError, pip_install
from spolia.indexing.sync.repair import repair as mended
from spolia.models.file_hash import cache_folder
from spolia.models.onnx.weights import MODEL, find
from spolia.private_files import share
from spolia.server.audit import FILE, verify_log
from spolia.stores.corpus import Corpus
from spolia.stores.files import FAIL_POINTS

BASE = ("chardet", "click", "numpy", "PyYAML", "rich", "selectolax", "tantivy", "urllib3")
EXTRAS = {
    "pdf": ("PDF files", ("pypdfium2",)),
    "images": ("pictures; their text with Tesseract", ("pillow",)),
    "office": ("DOCX, PPTX, XLSX files", ("python-docx", "python-pptx", "python-calamine")),
    "mail": ("Outlook's MSG files", ("olefile",)),
    "web": ("main content of web pages", ("trafilatura",)),
    "xberg": ("a hundred formats, by xberg", ("xberg",)),
    "docling": ("layout of pages by models, by docling", ("docling",)),
    "pandoc": ("LaTeX and other formats, by pandoc", ("pypandoc_binary",)),
    "embeddings": ("dense and hybrid search", ("onnxruntime", "tokenizers")),
    "gguf": ("models in GGUF on this machine", ("llama-cpp-python",)),
    "local": ("language models and embedders on this machine", ("torch", "transformers", "pillow")),
    "tune": ("tuning of language models", ("trl", "peft", "accelerate", "datasets")),
    "hnsw": ("graphs over many vectors", ("usearch",)),
    "parquet": ("data sets of AutoRAG", ("pyarrow",)),
    "postgres": ("stores in PostgreSQL", ("psycopg",)),
    "sql": ("rows of SQL databases", ("sqlalchemy",)),
    "text-to-sql": ("questions as SQL", ("sqlglot",)),
    "neo4j": ("graphs in Neo4j", ("neo4j",)),
    "graph": ("Cypher over a graph in a file", ("kglite",)),
    "fsspec": ("files of other file systems", ("fsspec",)),
    "watch": ("changes as they happen, for --watch", ("watchfiles",)),
    "lancedb": ("vectors in LanceDB", ("lancedb",)),
    "chroma": ("vectors in Chroma", ("chromadb",)),
    "milvus": ("vectors in Milvus", ("pymilvus", "milvus-lite")),
    "qdrant": ("vectors in Qdrant", ("qdrant-client",)),
    "opensearch": ("vectors in OpenSearch", ("opensearch-py",)),
    "tpe": ("the strategy tpe of tuning", ("optuna",)),
    "trees": ("boosted trees as a ranker", ("lightgbm",)),
    "server": (
        "flows over HTTP",
        (
            "fastapi",
            "starlette",
            "uvicorn",
            "uvloop",
            "httptools",
            "mcp",
            "pyjwt",
            "prometheus-client",
            "python-multipart",
        ),
    ),
    "otel": ("spans for OpenTelemetry", ("opentelemetry-sdk", "opentelemetry-exporter-otlp-proto-http")),
}


SHOWN = 10
"""Lines or names that are shown of many."""


@dataclass(frozen=True)
class Finding:
    """One line of the report. `state`: ok, missing (something optional) or broken."""

    about: str
    state: str
    text: str


def doctor(
    files: Annotated[
        list[Path] | None,
        argument("FILE", "Files or folders of experiments, studies, trainings, baselines and exports to check, too."),
    ] = None,
    store: MaybeStore = None,
    weights: WeightsFolder = "",
    deep: Annotated[bool, option("--deep", "Compare all of the store, and of the cache, with its digests.")] = False,
    audit_head: Annotated[
        str, option("--audit-head HASH", "Hash of a row that the audit log of `spolia serve` must have.")
    ] = "",
    profile_file: ProfileFile = None,
    json: AsJson = False,
) -> Exit:
    """Report what is installed, where the weights are, and whether a store is damaged."""
    screen, store = Screen(json=json), store or load_profile(profile_file).store or None
    if deep and store is None:
        raise QueryError("--deep reads a store. Write: spolia doctor --deep --store STORE")
    findings = [
        *_installed_findings(),
        _weights_finding(weights),
        *(store_findings(store, deep=deep, audit_head=audit_head) if store is not None else ()),
        *_elsewhere_findings(files or (), deep=deep),
    ]
    damaged = [
        finding.text for finding in findings if finding.state == "broken" and finding.about in ("store", "files")
    ]
    screen.give(
        findings=[asdict(finding) for finding in findings],
        ok=all(finding.state != "broken" for finding in findings),
        **({} if store is None and not files else {"sound": not damaged, "damaged": damaged}),
    )
    screen.show(_findings_table(findings))
    return Exit.STORE if any(finding.state == "broken" for finding in findings) else Exit.DONE


def _installed_findings() -> Iterator[Finding]:
    version = _installed_version("spolia") or "not installed as a package"
    yield Finding(
        "spolia", "ok", f"{version}, Python {platform.python_version()} on {sys.platform} {platform.machine()}"
    )
    missing = [name for name in BASE if not _installed_version(name)]
    versions = ", ".join(f"{name} {_installed_version(name)}" for name in BASE if name not in missing)
    lacking = "".join(f"; no {name}" for name in missing)
    lacking += f". Write: {pip_install('', '--force-reinstall')}" if missing else ""
    yield Finding("base", "broken" if missing else "ok", versions + lacking)
    for extra, (purpose, names) in EXTRAS.items():
        absent = [name for name in names if not _installed_version(name)]
        if absent:
            text = f"{purpose}: needs {', '.join(absent)}. Write: {pip_install(extra)}"
            yield Finding(extra, "missing", text)
        else:
            yield Finding(
                extra, "ok", f"{purpose}: " + ", ".join(f"{name} {_installed_version(name)}" for name in names)
            )


def _weights_finding(folder: str) -> Finding:
    try:
        located_weights = find(folder, hub=False)
    except SpoliaError as error:
        return Finding("weights", "broken" if folder else "missing", str(error))
    return Finding("weights", "ok", f"{MODEL} from {located_weights.source}: {located_weights.folder}")


def repair(
    store: StorePath,
    modules: Known = None,
    allow_env: AllowEnv = None,
    redact: Redact = None,
    wait: Wait = WAIT_S,
    permissions: Annotated[
        bool, option("--permissions", "Only set permissions: nobody else may read the store.")
    ] = False,
    shared_group: Annotated[
        str, option("--shared-group GROUP", "Only set permissions: this group of the system may read the store.")
    ] = "",
    profile_file: ProfileFile = None,
    json: AsJson = False,
) -> Exit:
    """Repair a damaged store: indexes, vectors and nodes from its own data, documents from the folder that was indexed.

    Damaged files are moved to the folder `damaged` in the store.
    The exit code is 3 if some damage is left; the output says what to do about it.
    """
    screen = Screen(json=json)
    if permissions or shared_group:
        return _permit(Corpus(store).backend.folder, shared_group, screen)
    user_modules = load_user_modules(modules)
    with screen.progress("repairing"):
        outcome = mended(
            Corpus(store), readers=build_readers(modules, redact), operators=user_modules.operators, wait_s=wait
        )
        mended_files = list(mend_files(Corpus(store).backend.folder))
    # Files come before documents, of which there may be thousands: only the first lines are shown.
    repaired = [*(message for message, is_mended in mended_files if is_mended), *outcome.repaired]
    remaining = [*(message for message, is_mended in mended_files if not is_mended), *outcome.left]
    screen.give(store=store, repaired=repaired, left=remaining)
    for word, lines in (("mended", repaired), ("left", remaining)):
        for line in lines[:SHOWN]:
            screen.show(f"{word}: {line}")
        if len(lines) > SHOWN:
            screen.show(f"{word}: {len(lines) - SHOWN:,} more. To list all: spolia repair --json")
    if not repaired and not remaining:
        screen.show(f"{store}: nothing is damaged")
    return Exit.STORE if remaining else Exit.DONE


def _permit(folder: Path, group: str, screen: Screen) -> Exit:
    """Set the modes of a store's files; new files get the same ones."""
    try:
        count = share(folder, group)
    except LookupError as error:
        raise QueryError(f"There is no group {group!r} on this system. Write one that `getent group` lists.") from error
    except OSError as error:
        raise StoreError(
            f"The permissions of {folder} cannot be set: {error.strerror}. Repeat as the owner of the store, and as a "
            "member of the group."
        ) from error
    screen.give(store=str(folder), changed=count, group=group or None)
    screen.show(
        f"{folder}: {several(count, 'file')} changed; {f'group {group} may' if group else 'only you can'} read it"
    )
    return Exit.DONE


def store_findings(path: str, *, deep: bool, audit_head: str = "") -> Iterator[Finding]:
    """Yield the findings about a store: its contents and its problems."""
    try:
        snapshot = Corpus(path).snapshot()
        stats, problems = snapshot.stats(), snapshot.check(deep=deep)
        manifests = [snapshot.manifest(group) for group in snapshot.groups()]
        lost = sorted(uri for uri, row in snapshot.sources().items() if row.size < 0)  # `repair` writes -1
    except Exception as error:  # whatever damage raises is what this looks for
        message = (
            str(error) if isinstance(error, SpoliaError) else f"{path} is damaged: {type(error).__name__}: {error}"
        )
        yield Finding("store", "broken", message)
        if deep:  # the files can be checked although the store cannot be opened
            yield from _file_findings(Corpus(path).backend.folder)
        return
    counts = dict(stats.sources)
    document_count = several(sum(counts.values()), "document")
    states = f" ({', '.join(f'{count} {status}' for status, count in stats.sources)})" if counts else ""
    shared = different_texts(stats.documents, sum(counts.values()) - counts.get("failed", 0))
    size = f"{stats.bytes / 1e6:.1f} MB, generation {stats.generation}"
    failed = f". Why some failed: spolia docs report --store {path}" if counts.get("failed") else ""
    yield Finding("store", "ok", f"{path}: {document_count}{states}{shared}, {size}{failed}")
    for manifest in manifests:
        nodes = dict(stats.nodes).get(manifest.group, 0)
        built = f"{nodes} nodes, cut by {manifest.transform}, embedded with {manifest.embedder or 'nothing'}"
        yield Finding(f"group {manifest.group}", "ok", built)
    for problem in problems:
        yield Finding("store", "broken", problem)
    if lost:
        names = ", ".join(lost[:SHOWN]) + (", …" if len(lost) > SHOWN else "")
        advice = "Index the folder with the options of before: spolia index FOLDER, or add_texts."
        yield Finding("store", "broken", f"{several(len(lost), 'damaged document')} not read again: {names}. {advice}")
    folder = Corpus(path).backend.folder
    files = list(_file_findings(folder) if deep else _header_findings(folder))  # only --deep reads whole files
    yield from files
    yield from _audit_findings(folder, audit_head)
    if problems or files:
        yield Finding("remedy", "broken", f"spolia repair --store {path}; what that cannot mend it names")


def _file_findings(folder: Path) -> Iterator[Finding]:
    """Yield findings for damaged files beside the database."""
    for file_damage in damaged_files(folder):
        yield Finding("store", "broken", file_damage.text)


def _header_findings(folder: Path) -> Iterator[Finding]:
    """Find databases beside the store's whose first bytes are wrong, or that became shorter."""
    for path in (folder / kind.pattern for kind in STORE_FILES if kind.check is record_files.damage):
        if cause := record_files.truncation_damage(path):
            yield Finding("store", "broken", f"{path} is damaged: {cause}")


def _elsewhere_findings(files: Sequence[Path], *, deep: bool) -> Iterator[Finding]:
    """Find damage of the named files and folders, and, if `deep`, of the cache folder."""
    for place in files:
        damaged = [Finding("files", "broken", file_damage.text) for file_damage in damaged_elsewhere(place)]
        yield from damaged or [Finding("files", "ok", f"{place}: nothing is damaged")]
    if deep and cache_folder().is_dir():
        for file_damage in damaged_elsewhere(cache_folder()):
            yield Finding("files", "broken", file_damage.text)


def _audit_findings(folder: Path, head: str) -> Iterator[Finding]:
    if not head and not (folder / FILE).exists():
        return
    try:
        rows, last = verify_log(folder / FILE, head)
    except (StoreCorrupt, OSError) as error:
        yield Finding("audit log", "broken", str(error))
    else:
        yield Finding("audit log", "ok", f"{several(rows, 'row')}, the last with the hash {last}")


def different_texts(texts: int, documents: int) -> str:
    """Words after a count of documents if some have the same text, which a store holds once.

    >>> different_texts(5, 6), different_texts(6, 6)
    (', 5 different texts', '')
    """
    return f", {several(texts, 'different text')}" if texts < documents else ""


def _installed_version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def _findings_table(findings: Sequence[Finding]) -> Renderable:
    styles = {"ok": "green", "missing": "yellow", "broken": "bold red"}
    return table(
        (text(finding.about, "bold"), text(finding.state, styles[finding.state]), text(finding.text))
        for finding in findings
    )


def fail_points(json: AsJson = False) -> Exit:
    """List the fail points; SPOLIA_FAIL_POINT=name, or name@n for the n-th time, kills the process there."""
    screen = Screen(json=json)
    screen.give(fail_points=list(FAIL_POINTS))
    screen.show("\n".join(FAIL_POINTS))
    return Exit.DONE
