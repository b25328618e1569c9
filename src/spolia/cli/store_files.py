"""Every file that Spolia writes into a store's folder: what it holds, what follows from damage, who looks for it.

`spolia doctor --deep`, `spolia repair`, the flip test and a walk over a real store read this table.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from hashlib import sha256
from pathlib import Path
from typing import Literal, TypeAlias

from spolia import record_files
from spolia.errors import SpoliaError
from spolia.evaluation.creation.feedback import FeedbackQueue
from spolia.private_files import DAMAGED, set_aside
from spolia.retrieval.array_files import array_damage
from spolia.retrieval.token_index import token_file_damage
from spolia.server import audit
from spolia.server.keys import token_damage
from spolia.services.aliases import Aliases
from spolia.services.callbacks import secret_damage

IfDamaged: TypeAlias = Literal["rebuilt", "restored", "harmless"]
Check: TypeAlias = Callable[[Path], str]


def by_store(_: Path) -> str:
    """Nothing: `Snapshot.check` reads it, together with what depends on it, and `spolia.stores.repair` mends it."""
    return ""


def without_content(_: Path) -> str:
    """Nothing: no answer depends on what is in it."""
    return ""


def _audit_damage(file: Path) -> str:
    audit.verified(file)
    return ""


def _alias_damage(file: Path) -> str:
    Aliases(file.parent).history()
    return ""


def _flow_damage(file: Path) -> str:
    """A promoted flow is in a folder named after its content."""
    is_whole = sha256(file.read_bytes()).hexdigest().startswith(file.parent.name)
    return "" if is_whole else f"{file} is damaged: it is not the flow that was promoted. Promote it again."


@dataclass(frozen=True)
class StoreFile:
    """A kind of file in a store's folder.

    Args:
        pattern: its path in the folder; `*` stands for anything.
        holds: in words.
        if_damaged: `rebuilt`: set aside, and made again from other files; `restored`: named in an error, and kept as it
            is, since only a backup has the same content; `harmless`: no content is read.
        check: gives the damage of a file in words, or raises a `SpoliaError`.
    """

    pattern: str
    holds: str
    if_damaged: IfDamaged
    check: Check


STORE_FILES = (
    StoreFile("corpus.db*", "documents, nodes, generations", "restored", by_store),
    StoreFile("vectors/*", "embeddings", "rebuilt", by_store),
    StoreFile("lexical/*", "an index of words for each generation", "rebuilt", by_store),
    StoreFile("graphs/*", "graphs over vectors", "rebuilt", by_store),
    StoreFile("databases/*", "embedded vector databases, and their markers", "rebuilt", by_store),
    StoreFile("links/*", "links between nodes", "rebuilt", array_damage),
    StoreFile("tokens/*.npz", "where the token vectors of texts are, and their digest", "rebuilt", token_file_damage),
    StoreFile("tokens/*.npy", "token vectors", "rebuilt", by_store),
    StoreFile("pins/*", "who reads a generation", "harmless", without_content),
    StoreFile("*.lock", "who writes, or builds", "harmless", without_content),
    StoreFile("spool/*", "copies of files that a run reads now", "harmless", without_content),
    StoreFile(f"{DAMAGED}/*", "damaged files that were set aside", "harmless", without_content),
    StoreFile("*.db-shm", "the index of a log ahead of a database", "harmless", without_content),
    StoreFile("*.db-wal", "a log ahead of a database", "restored", by_store),
    StoreFile("runs.db", "traces, cached results, served answers", "rebuilt", record_files.damage),
    StoreFile("jobs.db", "uploads and tasks", "restored", record_files.damage),
    StoreFile("usage.db", "what keys have used today", "restored", record_files.damage),
    StoreFile("aliases.json", "promoted flows", "restored", _alias_damage),
    StoreFile("flows/*", "copies of promoted flow files", "restored", _flow_damage),
    StoreFile("audit.jsonl", "requests", "restored", _audit_damage),
    StoreFile("feedback.jsonl", "feedback of users", "restored", lambda file: FeedbackQueue(file).damage()),
    StoreFile("serve.token", "the token of a server on this machine", "restored", token_damage),
    StoreFile("callback.secret", "what signs callbacks", "restored", secret_damage),
)


@dataclass(frozen=True)
class FileDamage:
    """A damaged file, and the damage in words."""

    path: Path
    kind: StoreFile
    text: str


def kind_of(inside: str) -> StoreFile | None:
    """The kind of a file, by its path in the folder."""
    return next((kind for kind in STORE_FILES if fnmatchcase(inside, kind.pattern)), None)


def damaged_files(folder: Path) -> Iterator[FileDamage]:
    """The damaged files of a store's folder, but for those that the store's own check reads. Nothing is written."""
    for path in sorted(folder.rglob("*")):
        kind = kind_of(path.relative_to(folder).as_posix())
        if kind is not None and path.is_file() and (text := _damage(kind, path)):
            yield FileDamage(path, kind, text)


def mend_files(folder: Path) -> Iterator[tuple[str, bool]]:
    """Set aside damaged files beside the database that can be made again; the damage, and whether it is mended."""
    for found in damaged_files(folder):
        if found.kind.if_damaged == "rebuilt":
            yield f"{found.text}. It is now {set_aside(found.path, folder)}, and is made again when it is needed.", True
        else:
            yield found.text, False


def _damage(kind: StoreFile, path: Path) -> str:
    try:
        return kind.check(path)
    except (SpoliaError, OSError) as error:
        return str(error)
