"""A worker: prepares one source after the other, or embeds texts, and says what came of it."""

from __future__ import annotations

import os
import pickle
import shutil
import sys
from pathlib import Path
from typing import Any, BinaryIO

from spolia.errors import MissingExtra, SpoliaError
from spolia.indexing.readers.reader import Blob, Container
from spolia.indexing.workers.prepare import prepare
from spolia.indexing.workers.protocol import WorkerLimits, confine, plain, plain_pieces, receive, send


def main() -> None:
    """Serve standard input and output until the other side closes. What readers print goes to standard error."""
    requests, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    sys.stdin.close()
    (limits,) = pickle.loads(_first(requests))  # from the process that started this one
    assert isinstance(limits, WorkerLimits)
    confine(limits)
    send(replies, {"ready": True})
    while (request := receive(requests)) is not None:
        _serve(*request, requests, replies)


def _first(requests: BinaryIO) -> bytes:
    found = receive(requests)
    if found is None:
        raise SystemExit(0)
    return found[1][0]


def _serve(said: dict[str, Any], attached: list[bytes], requests: BinaryIO, replies: BinaryIO) -> None:
    """One request. A reply that began is ended, whatever happens."""
    try:
        reader: Any = pickle.loads(attached[0])
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
    except MemoryError:
        send(replies, {"memory": True})
    except MissingExtra as error:
        send(replies, {"missing": [error.extra, error.module, error.purpose]})
    except SpoliaError as error:
        send(replies, {"error": type(error).__name__, "message": str(error)})
    except RecursionError:
        send(replies, {"fault": "it is nested too deep"})
    except Exception as error:  # a reader's fault on a strange file is a reply like another
        send(replies, {"fault": f"{type(error).__name__}: {error}"})


def _embed(embedder: Any, texts: list[str], replies: BinaryIO) -> None:
    """Embed texts, and tell what that charges."""
    from spolia.run import Run

    with Run() as run:
        vectors = embedder.embed(texts, kind="passage")
    used = run.usage
    usage = used.calls, used.input_tokens, used.output_tokens, used.embedded
    send(replies, {"usage": usage, "cost_usd": used.cost_usd}, [vectors.astype("<f4").tobytes()])


def _has_parts(reader: Any, blob: Blob) -> bool:
    """Whether it is worth while to open a blob that was read; what is wrong is said when that is done."""
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


if __name__ == "__main__":
    main()
