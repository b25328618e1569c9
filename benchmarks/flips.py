"""One byte of a store is changed: whether answers change, whether `doctor --deep` sees it, whether `repair` mends it.

    python benchmarks/flips.py [--flips 1000] [--ahead 100] [--elsewhere 1000] [--seed 17] [--out FILE]

The store is made of a folder of small texts: a group of windows with vectors, one of sentences with words, one with a
graph, metadata to filter by, files that only some may read; and of what a service keeps beside it. Each flip changes
one byte to another value, half of them drawn evenly from all bytes, half from all kinds of files; a process of its own
then asks the same questions as before (words, vectors, a graph, a filter, two askers, every document and node), looks
for damage, repairs the store, and asks again.
`unseen`: other answers, and no damage found. What answers with an error or with other results counts as `other`.
`unmended`: damage that is found, and is still there, or gives other answers, after a repair. `ahead`: the same of the
log that SQLite writes ahead of the database, which a killed process leaves. `elsewhere`: the same of the files that
Spolia writes outside stores (studies, experiments, trained parts, baselines, exports, the cache), read one by one;
`raw`: an error that is no `SpoliaError`; `lost`: the damaged content is nowhere any more.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import re
import shutil
import signal
import sqlite3
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import results

from spolia import Corpus, sync
from spolia.cli.commands.doctor import store_findings
from spolia.cli.written_files import damaged_elsewhere, kind_of, mend_files, skip_for_store_check
from spolia.errors import SpoliaError
from spolia.filters import Between
from spolia.indexing.sync.groups import main_definition
from spolia.indexing.sync.repair import repair
from spolia.stores.corpus import NodeGroup
from spolia.stores.definition import Definition, Embedding, Whole
from spolia.stores.indexes import HNSW
from spolia.stores.open_store import forget
from spolia.stores.vectors import external_index, segment_search, sparse
from spolia.testing.hash_embedder import HashingEmbedder
from spolia.testing.other_files import make_other_files, read_other
from spolia.testing.stores.service import content_of, make_service_files

SECONDS = 60
EMBEDDER = HashingEmbedder(8)
LOADED = (external_index, segment_search, sparse)
"""What every process would import by itself."""
_FOLDER = re.compile(r"\S*/spolia-\w+/damaged\.spolia/")
WORDS = "stone tide salt bridge temple wall river mill bell tower glass iron wool bread ship harbour road clay lamp"
QUESTIONS = ("Which stone holds the bridge?", "tide and salt", "Who built the mill by the river?", "lamp of glass")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--flips", type=int, default=1000)
    parser.add_argument("--ahead", type=int, default=100)
    parser.add_argument("--elsewhere", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=17)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    result = flip_bytes(options.flips, options.seed, ahead=False)
    result["ahead"] = flip_bytes(options.ahead, options.seed, ahead=True)
    result["elsewhere"] = flipped_elsewhere(options.elsewhere, options.seed)
    results.publish("flips", result, options.out)


def flip_bytes(flips: int, seed: int, *, ahead: bool) -> dict[str, Any]:
    """What becomes of so many flips; those of a killed process are in the log that SQLite writes ahead."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="spolia-", dir=memory) as name:
        folder = Path(name)
        right_answers = run_in_child(lambda: make_store(folder, ahead=ahead))["answers"]
        pattern = "corpus.db-wal" if ahead else "*"
        files = [path for path in (folder / "whole.spolia").rglob(pattern) if path.is_file() and path.stat().st_size]
        files.sort()
        kinds: dict[object, list[Path]] = {}
        for file in files:
            kinds.setdefault(kind_of(file.relative_to(folder / "whole.spolia").as_posix()), []).append(file)
        generator, rows = random.Random(seed), []
        for number in range(flips):
            (path,) = generator.choices(files, [path.stat().st_size for path in files])
            if number % 2:
                kind = generator.choice(list(kinds))
                path = generator.choice(kinds[kind])
            place, change = generator.randrange(path.stat().st_size), generator.randrange(1, 256)
            inside = path.relative_to(folder / "whole.spolia")
            row = run_in_child(lambda: try_flip(folder, inside, place, change, right_answers))  # noqa: B023
            rows.append({"flip": number, "file": str(inside), "place": place, "change": change, **row})
            if row.get("wrong"):
                print(json.dumps(rows[-1])[:600], flush=True)
        return summarise(rows)


def flipped_elsewhere(flips: int, seed: int) -> dict[str, Any]:
    """What becomes of so many flips in files outside stores, drawn evenly from their kinds."""
    with tempfile.TemporaryDirectory(prefix="spolia-") as name:
        folder, generator, rows = Path(name), random.Random(seed), list[dict[str, Any]]()
        run_in_child(lambda: make_store(folder, ahead=False) and {})
        run_in_child(lambda: make_other_files(folder / "whole", Corpus(folder / "whole.spolia")) or {})
        files = sorted(path for path in (folder / "whole").rglob("*") if path.is_file() and path.stat().st_size)
        for number in range(flips):
            path = generator.choice(files)
            place, change = generator.randrange(path.stat().st_size), generator.randrange(1, 256)
            row = run_in_child(lambda: tried_elsewhere(path, folder / "tried", place, change))  # noqa: B023
            rows.append({"flip": number, "file": path.name, "place": place, "change": change, **row})
            if row["wrong"]:
                print(json.dumps(rows[-1])[:600], flush=True)
    wrong = [row for row in rows if row["wrong"]]
    counts = {kind: sum(kind in row["wrong"] for row in rows) for kind in ("unseen", "raw", "lost", "died")}
    return {"flips": len(rows), "files": len(files), "seen": sum(row.get("seen", False) for row in rows)} | counts | {
        "what": wrong[:20]
    }  # fmt: skip


def tried_elsewhere(source: Path, tried: Path, place: int, change: int) -> dict[str, Any]:
    shutil.rmtree(tried, ignore_errors=True)
    folder = tried / source.parent.name
    shutil.copytree(source.parent, folder)
    file, content = folder / source.name, bytearray(source.read_bytes())
    whole = repr(read_other(file))
    content[place] ^= change
    file.write_bytes(content)
    is_noticed, reading, wrong = bool(list(damaged_elsewhere(file))), "", []
    try:
        reading = repr(read_other(file))
    except SpoliaError:
        pass  # an error that names the damage
    except Exception:
        wrong.append("raw")
    if reading != whole and not is_noticed:
        wrong.append("unseen")
    if not any(path.read_bytes() == content for path in folder.rglob("*") if path.is_file()):
        wrong.append("lost")
    return {"seen": is_noticed, "wrong": wrong}


def summarise(rows: list[dict[str, Any]]) -> dict[str, Any]:
    wrong = [row for row in rows if row.get("wrong")]
    return {
        "flips": len(rows),
        "bytes": dict(Counter(Path(row["file"]).suffix or row["file"] for row in rows)),
        "other": sum(bool(row.get("other")) for row in rows),
        "seen": sum(bool(row.get("seen")) for row in rows),
        "unseen": sum("unseen" in row.get("wrong", ()) for row in rows),
        "unmended": sum("unmended" in row.get("wrong", ()) for row in rows),
        "without_remedy": sum(bool(row.get("without_remedy")) for row in rows),
        "died": sum("died" in row.get("wrong", ()) for row in rows),
        "what": wrong[:20],
        "lost": [
            {"file": row["file"], "left": [_FOLDER.sub("", message) for message in row["left"]]}
            for row in rows
            if row.get("without_remedy")
        ],
    }


def run_in_child(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What a forked process finds; it is killed after a while."""
    reading, writing = os.pipe()
    if (pid := os.fork()) == 0:
        os.close(reading)
        signal.alarm(SECONDS)
        try:
            outcome = work()
        except BaseException:
            outcome = {"wrong": ["died"], "error": traceback.format_exc()[-1500:]}
        with os.fdopen(writing, "w") as pipe:
            json.dump(outcome, pipe)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        text = pipe.read()
    _, status = os.waitpid(pid, 0)
    report: dict[str, Any] = json.loads(text) if text else {"wrong": ["died"], "error": f"status {status}"}
    return report


def make_store(folder: Path, *, ahead: bool) -> dict[str, Any]:
    notes, generator, words = folder / "notes", random.Random(3), WORDS.split()
    for number in range(24):
        lines = [" ".join(generator.choices(words, k=12)).capitalize() + "." for _ in range(6)]
        path = notes / ("secret" if number % 8 == 0 else "open") / f"{number}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"# Note {number}\n\n" + "\n\n".join(lines))
    corpus = Corpus(folder / "whole.spolia")
    _, *groups = groups_of(corpus)
    access = lambda uri: ("ann",) if uri.startswith("secret/") else ()  # noqa: E731
    sync(notes, corpus, embedder=EMBEDDER, groups=[corpus.group("sentence"), *groups], access=access)
    make_service_files(corpus)
    right_answers = answers(corpus)
    if not ahead:
        forget(corpus.backend)
        gc.collect()
        for path in (folder / "whole.spolia").glob("*.db"):
            with closing(sqlite3.connect(path)) as connection:
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return {"answers": right_answers}


def groups_of(corpus: Corpus) -> list[NodeGroup]:
    """Those whose embedder the store cannot make by itself."""
    near = Definition(Whole(), parent="sentence", embeddings=(Embedding(EMBEDDER, HNSW(above=10, connectivity=4)),))
    return [corpus.group("chunk", main_definition(None, EMBEDDER, None)), corpus.group("near", near)]


def answers(corpus: Corpus) -> list[Any]:
    """What is found, with texts, places and scores."""
    snapshot, views = corpus.latest(), list[Any]()
    small = Between("file_size", at_most=450)
    for principals in (frozenset(), frozenset({"ann"})):
        views.append([repr(document) for document in snapshot.documents(principals)])
        for group in ("chunk", "sentence", "near"):
            views.append([repr(node) for node in snapshot.all_nodes(group, principals)])
        for question in QUESTIONS:
            vectors = EMBEDDER.embed([question], kind="query")
            searches = [
                snapshot.search("chunk", question, 5, principals),
                snapshot.search("sentence", question, 5, principals, small),
                snapshot.nearest_batch("chunk", EMBEDDER.name, vectors, 5, principals)[0],
                snapshot.nearest_batch("near", EMBEDDER.name, vectors, 5, principals)[0],
            ]
            views += [
                [repr((hit.node, hit.score)) for hit in snapshot.hits(scored_keys, principals)]
                for scored_keys in searches
            ]
    return views + [repr(content_of(file)) for file in service_files(Path(corpus.path))]


def service_files(store: Path) -> list[Path]:
    """The files of a service that only a backup can restore."""
    kinds = {path: kind_of(path.relative_to(store).as_posix()) for path in sorted(store.rglob("*")) if path.is_file()}
    return [
        path
        for path, kind in kinds.items()
        if kind and kind.if_damaged == "restored" and kind.check is not skip_for_store_check
    ]


def try_flip(folder: Path, inside: Path, place: int, change: int, before: list[Any]) -> dict[str, Any]:
    sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    os.dup2(sys.stderr.fileno(), 2)  # tantivy says in its own way that it panics
    store = folder / "damaged.spolia"
    shutil.rmtree(store, ignore_errors=True)
    shutil.copytree(folder / "whole.spolia", store)
    content = bytearray((store / inside).read_bytes())
    content[place] ^= change
    (store / inside).write_bytes(content)
    corpus = Corpus(store)
    differences, findings = differs(corpus, before), damage(corpus)
    row: dict[str, Any] = {"other": differences, "seen": findings[:3], "wrong": []}
    if differences and not findings:
        row["wrong"].append("unseen")
    if findings:
        try:
            report = repair(corpus, groups=groups_of(corpus))
            mend_files_found = list(mend_files(store))
            row |= {"repaired": list(report.repaired)[:3], "left": list(report.left)[:3]}
            row["left"] += [
                f"{message} It has to be restored from a backup."
                for message, is_mended in mend_files_found
                if not is_mended
            ]
        except Exception as error:
            row["left"] = [f"{type(error).__name__}: {error}"]
        row["without_remedy"] = any("restored from a backup" in message for message in row["left"])
        forget(corpus.backend)
        if not row["without_remedy"] and (row["left"] or damage(corpus) or differs(corpus, before)):
            row["wrong"].append("unmended")
            row["after"] = [damage(corpus)[:3], differs(corpus, before)]
    return row


def differs(corpus: Corpus, right_answers: list[Any]) -> str:
    """How answers differ from those of the whole store, in words; empty if they do not."""
    try:
        now = answers(corpus)
    except BaseException as error:
        return f"{type(error).__name__}: {error}"[:300]
    return "" if now == right_answers else "other answers"


def damage(corpus: Corpus) -> list[str]:
    """What `spolia doctor --deep` says."""
    return [finding.text for finding in store_findings(corpus.path, deep=True) if finding.state == "broken"]


if __name__ == "__main__":
    main()
