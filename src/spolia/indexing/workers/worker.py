"""A worker: prepares one source after the other, or embeds texts, and says what came of it."""

from __future__ import annotations

import os
import pickle
import shutil
from pathlib import Path
from typing import Any, BinaryIO

from spolia.indexing.readers.reader import Blob, Container
from spolia.indexing.workers.prepare import prepare
from spolia.indexing.workers.protocol import plain, plain_pieces
from spolia.worker_process import die_with_parent, receive, send, serve


def main() -> None:
    """Serve the process that started this one."""
    die_with_parent()
    serve(_answer)


def _answer(said: dict[str, Any], attached: list[bytes], requests: BinaryIO, replies: BinaryIO) -> None:
    """One request. A reply that began is ended, whatever happens."""
    reader: Any = pickle.loads(attached[0])  # from the process that started this one
    if said["task"] == "embed":
        _embed(reader, said["texts"], replies)
        return
    blob = Blob(said["uri"], Path(said["path"]) if said["path"] else attached[1])
    if said["task"] == "parts":
        assert isinstance(reader, Container)
        for number, part in enumerate(reader.parts(blob)):
            if isinstance(part.content, Path) and said["spool"]:
                name = f"{os.getpid()}-{number}"
                _link(part.content, Path(said["spool"], name))
                send(replies, {"part": part.uri, "file": name})
                receive(requests)  # the next one is wanted
            else:
                send(replies, {"part": part.uri}, [part.data])
        send(replies, {"end": True})
    else:
        found = prepare(reader, blob, pickle.loads(attached[2]))
        reading, images = plain(found.reading)
        more = {"pieces": plain_pieces(found.pieces), "has_parts": _has_parts(reader, blob)}
        send(replies, {**reading, **more}, images)


def _embed(embedder: Any, texts: list[str], replies: BinaryIO) -> None:
    """Embed texts, and tell what that charges."""
    from spolia.run import Run

    with Run() as run:
        vectors = embedder.embed(texts, kind="passage")
    used = run.usage
    usage = used.calls, used.input_tokens, used.output_tokens, used.embedded
    send(replies, {"usage": usage, "cost_usd": used.cost_usd}, [vectors.astype("<f4").tobytes()])


def _has_parts(reader: Any, blob: Blob) -> bool:
    """Whether it is worth while to open a blob that was read; errors are reported when it is opened."""
    try:
        return isinstance(reader, Container) and next(iter(reader.parts(blob)), None) is not None
    except Exception:
        return True


def _link(there: Path, name: Path) -> None:
    """Another name for a file: the reader takes its own back when it goes on."""
    try:
        os.link(there, name)
    except OSError:  # on another device
        shutil.copyfile(there, name)
