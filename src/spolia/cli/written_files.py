"""Table of every file that Spolia writes: what it holds, what follows from damage, who checks it, which modules write
it.

`spolia doctor`, `spolia repair`, the flip test and walks over the code and over real folders read this table.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from hashlib import sha256
from pathlib import Path
from typing import Literal, TypeAlias
from zipfile import BadZipFile, ZipFile
from zlib import error as ZlibError

from spolia import checksums, record_files
from spolia.errors import DataError, SpoliaError
from spolia.evaluation.creation.feedback import FeedbackQueue
from spolia.evaluation.data.usage_log import UsageLog
from spolia.evaluation.experiment.score_store import experiment_damage
from spolia.evaluation.gate.baseline import Baseline
from spolia.models.trained_weights import CARD, refuse_changed
from spolia.private_files import DAMAGED, set_aside
from spolia.retrieval.array_files import array_damage
from spolia.retrieval.token_index import token_file_damage
from spolia.server import audit
from spolia.server.keys import token_damage
from spolia.services.aliases import Aliases
from spolia.services.callbacks import secret_damage
from spolia.services.traffic import TrafficBaseline
from spolia.stores.files import DATABASE
from spolia.stores.portable import CONTENTS, export_damage

IfDamaged: TypeAlias = Literal["rebuilt", "restored", "harmless", "yours"]
Check: TypeAlias = Callable[[Path], str]


def skip_for_store_check(_: Path) -> str:
    """Return nothing: `Snapshot.check` reads the file, with what depends on it, and `spolia.stores.repair` mends it."""
    return ""


def skip_content(_: Path) -> str:
    """Return nothing: no answer depends on the content."""
    return ""


def _audit_damage(file: Path) -> str:
    audit.verify_log(file)
    return ""


def _alias_damage(file: Path) -> str:
    Aliases(file.parent).history()
    return ""


def _flow_damage(file: Path) -> str:
    """Return the damage of a promoted flow, which is in a folder named after its content."""
    is_whole = sha256(file.read_bytes()).hexdigest().startswith(file.parent.name)
    return "" if is_whole else f"{file} is damaged: it is not the flow that was promoted. Promote it again."


def _weights_damage(file: Path) -> str:
    refuse_changed(file.parent, file.name)
    return ""


def _json_damage(file: Path) -> str:
    """Return the damage of a baseline, whose name its user chose."""
    try:
        plain = json.loads(file.read_bytes())
    except (ValueError, RecursionError) as error:
        return f"{file} is damaged: it is not JSON ({error})"
    if isinstance(plain, dict) and {"flow", "values", "until"} <= plain.keys():
        TrafficBaseline.read(file)
    else:
        Baseline.read(file)
    return ""


def _zip_damage(file: Path) -> str:
    """Return the damage of an export of a store, or of the originals of its documents."""
    try:
        with ZipFile(file) as archive:
            is_originals = CONTENTS not in archive.namelist() and "originals.json" in archive.namelist()
            damaged = archive.testzip() if is_originals else None
    except (BadZipFile, ZlibError, EOFError, ValueError, NotImplementedError, RuntimeError) as error:
        return f"{file} is damaged: {error}"
    if damaged:
        return f"{file} is damaged: the checksum of {damaged} differs"
    return "" if is_originals else export_damage(file)


@dataclass(frozen=True)
class WrittenFile:
    """Kind of file that Spolia writes.

    Args:
        pattern: its path in a store's folder, elsewhere the end of its path; `*` stands for anything. Empty for a path
            that the user names.
        holds: in words.
        if_damaged: `rebuilt`: set aside, and made again from other files; `restored`: named in an error, and kept as it
            is, since only a backup has the same content; `harmless`: no content is read; `yours`: you may edit it.
        check: gives the damage of a file in words, or raises a `SpoliaError`.
        writers: the modules that write it.
    """

    pattern: str
    holds: str
    if_damaged: IfDamaged
    check: Check
    writers: tuple[str, ...] = ()


_DATABASE = tuple(f"stores.backends.sqlite.{name}" for name in ("connection", "folder", "salvage"))
_LEXICAL = tuple(f"stores.lexical.{name}" for name in ("index", "index_replica", "index_writer"))
_COPIES = ("indexing.sources.remote_files", "indexing.sync.files", "indexing.sync.prefetch", "services.publisher")
_MEMBERS = ("indexing.readers.archives", "indexing.workers.protocol")
_LINKS = ("retrieval.graph.build", "retrieval.learned.links")

STORE_FILES = (
    WrittenFile(f"{DATABASE}*", "documents, nodes, generations", "restored", skip_for_store_check, _DATABASE),
    WrittenFile("vectors/*", "embeddings", "rebuilt", skip_for_store_check, ("stores.vectors.dense",)),
    WrittenFile("lexical/*", "an index of words for each generation", "rebuilt", skip_for_store_check, _LEXICAL),
    WrittenFile("graphs/*", "graphs over vectors", "rebuilt", skip_for_store_check, ("stores.vectors.graphs",)),
    WrittenFile(
        "databases/*", "embedded vector databases, and their markers", "rebuilt", skip_for_store_check,
        ("stores.vectors.external_index",),
    ),
    WrittenFile("links/*", "links between nodes", "rebuilt", array_damage, _LINKS),
    WrittenFile(
        "tokens/*.npz", "where the token vectors of texts are, and their digest", "rebuilt", token_file_damage,
        ("retrieval.token_index",),
    ),
    WrittenFile("tokens/*.npy", "token vectors", "rebuilt", skip_for_store_check, ("retrieval.token_index",)),
    WrittenFile("pins/*", "who reads a generation", "harmless", skip_content, _DATABASE),
    WrittenFile("*.lock", "who writes, or builds", "harmless", skip_content, (*_LEXICAL, "services.aliases")),
    WrittenFile("spool/*", "copies of files that a run reads now", "harmless", skip_content, (*_COPIES, *_MEMBERS)),
    WrittenFile(f"{DAMAGED}/*", "damaged files that were set aside", "harmless", skip_content),
    WrittenFile("*.db-shm", "the index of a log ahead of a database", "harmless", skip_content),
    WrittenFile("*.db-wal", "a log ahead of a database", "restored", skip_for_store_check),
    WrittenFile(
        "runs.db", "traces, cached results, served answers", "rebuilt", record_files.damage, ("journal.database",)
    ),
    WrittenFile("jobs.db", "uploads and tasks", "restored", record_files.damage, ("services.jobs",)),
    WrittenFile("usage.db", "what keys have used today", "restored", record_files.damage, ("server.keys",)),
    WrittenFile("aliases.json", "promoted flows", "restored", _alias_damage, ("services.aliases",)),
    WrittenFile("flows/*", "copies of promoted flow files", "restored", _flow_damage, ("services.aliases",)),
    WrittenFile("audit.jsonl", "requests", "restored", _audit_damage, ("server.audit",)),
    WrittenFile(
        "feedback.jsonl", "feedback of users", "restored", lambda file: FeedbackQueue(file).damage(),
        ("evaluation.creation.feedback",),
    ),
    WrittenFile("serve.token", "the token of a server on this machine", "restored", token_damage, ("server.keys",)),
    WrittenFile("callback.secret", "what signs callbacks", "restored", secret_damage, ("services.callbacks",)),
)  # fmt: skip
"""Files in a store's folder."""

OTHER_FILES = (
    WrittenFile(f"{DAMAGED}/*/*", "damaged files that were set aside", "harmless", skip_content),
    WrittenFile("file_hashes/*.json", "hashes of large files", "rebuilt", checksums.damage, ("models.file_hash",)),
    WrittenFile(
        "studies/*.json", "what studies chose, for the next one", "rebuilt", checksums.damage,
        ("optimizer.earlier_studies",),
    ),
    WrittenFile(
        "*looks.jsonl", "which questions chose which flows", "restored", lambda file: UsageLog(file).damage(),
        ("evaluation.data.usage_log",),
    ),
    WrittenFile(
        "*.experiment", "answers and scores", "rebuilt", experiment_damage, ("evaluation.experiment.score_store",)
    ),
    WrittenFile("*.db", "traces, cached results, judgements", "rebuilt", record_files.damage, ("journal.database",)),
    WrittenFile("study.json", "what a study is about", "restored", checksums.damage, ("optimizer.study",)),
    WrittenFile("pilot.json", "what a score takes", "rebuilt", checksums.damage, ("optimizer.study",)),
    WrittenFile("warm_start.json", "where a search began", "rebuilt", checksums.damage, ("optimizer.study",)),
    WrittenFile("finished.json", "the result of a study", "rebuilt", checksums.damage, ("cli.finished_study",)),
    WrittenFile("tuned.json", "the finalists of a study", "rebuilt", checksums.damage, ("cli.commands.tune",)),
    WrittenFile("checkpoint.npz", "a training in progress", "rebuilt", array_damage, ("training.training",)),
    WrittenFile(
        CARD, "what a part was trained on, and its score", "restored", checksums.damage,
        ("training.training", "training.language_model"),
    ),
    WrittenFile(
        "*.safetensors", "trained weights", "restored", _weights_damage, ("training.fine_tuning",)
    ),
    WrittenFile("weights.json", "trained weights", "restored", _weights_damage, ("training.training",)),
    WrittenFile(
        "*.json", "a baseline of a gate, or of traffic", "restored", _json_damage,
        ("evaluation.gate.baseline", "services.traffic"),
    ),
    WrittenFile("*.zip", "an export of a store", "restored", _zip_damage, ("stores.portable", "cli.commands.export")),
    WrittenFile(
        "", "data sets and questions", "yours", skip_content,
        (
            *(f"evaluation.data.formats.{name}" for name in ("autorag", "hotpotqa", "native", "trec")),
            "evaluation.creation.items", "evaluation.simulation.world", "cli.commands.questions", "cli.commands.rows",
        ),
    ),
    WrittenFile(
        "", "projects, flows, prompts and keys", "yours", skip_content,
        (
            "cli.commands.init", "cli.commands.prompts", "cli.commands.tune", "cli.autorag_study", "training.training",
            "server.keys",
        ),
    ),
    WrittenFile(
        "", "reports, pages and lists", "yours", skip_content,
        ("cli.commands.gate", "cli.commands.trace", "cli.commands.tune", "cli.documents", "cli.reports"),
    ),
    WrittenFile("", "databases that a flow reads", "yours", skip_content, ("databases.sqlite_file",)),
)  # fmt: skip
"""Files elsewhere: in the cache folder, in folders of studies and trainings, at paths that users name."""
MECHANISMS = (
    "checksums", "evaluation.data.json_lines", "models.onnx.safetensors", "private_files", "record_files",
    "retrieval.array_files",
)  # fmt: skip
"""Modules that write for others."""


@dataclass(frozen=True)
class FileDamage:
    """Damaged file, and the damage in words."""

    path: Path
    kind: WrittenFile
    text: str


def kind_of(inside: str) -> WrittenFile | None:
    """Return the kind of a file of a store, by its path in the store's folder."""
    return next((kind for kind in STORE_FILES if fnmatchcase(inside, kind.pattern)), None)


def damaged_files(folder: Path) -> Iterator[FileDamage]:
    """Yield the damaged files of a store's folder, except those that the store's own check reads. Write nothing."""
    for path in sorted(folder.rglob("*")):
        kind = kind_of(path.relative_to(folder).as_posix())
        if kind is not None and path.is_file() and (text := _damage(kind, path)):
            yield FileDamage(path, kind, text)


def kind_elsewhere(path: Path) -> WrittenFile | None:
    """Return the kind of a file that is in no store."""
    return next((kind for kind in OTHER_FILES if kind.pattern and path.match(kind.pattern)), None)


def damaged_elsewhere(place: Path) -> Iterator[FileDamage]:
    """Yield the damaged files in a folder, but for stores, or the damage of a file. Nothing is written.

    Raises:
        DataError: it does not exist, or is a file that Spolia cannot check.
    """
    if not place.exists() or (place.is_file() and kind_elsewhere(place) is None):
        problem = "Spolia cannot check this file" if place.exists() else "not found"
        raise DataError(
            f"{place}: {problem}. Write a file or folder of an experiment, study, training, baseline or export, or "
            "--store STORE."
        )
    for path in sorted(_outside_stores(place)):
        kind = kind_elsewhere(path)
        # Other programs write JSON and ZIP files into folders, too.
        is_named = path == place or (kind is not None and kind.check not in (_json_damage, _zip_damage))
        if kind is not None and is_named and (text := _damage(kind, path)):
            yield FileDamage(path, kind, text)


def _outside_stores(place: Path) -> Iterator[Path]:
    if place.is_file():
        yield place
    elif place.is_dir() and not (place / DATABASE).exists():
        for child in place.iterdir():
            yield from _outside_stores(child)


def mend_files(folder: Path) -> Iterator[tuple[str, bool]]:
    """Set aside damaged files beside the database that can be made again; the damage, and whether it is mended."""
    for file_damage in damaged_files(folder):
        if file_damage.kind.if_damaged == "rebuilt":
            yield (
                f"{file_damage.text}. It is now {set_aside(file_damage.path, folder)}, and is made again when it is "
                "needed.",
                True,
            )
        else:
            yield file_damage.text, False


def _damage(kind: WrittenFile, path: Path) -> str:
    try:
        return kind.check(path)
    except (SpoliaError, OSError) as error:
        return str(error)
