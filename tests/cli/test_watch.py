"""`spolia index --watch` beside a real folder: what changes there is in the store soon, and said in one line."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from spolia.cli.screen import Screen
from spolia.cli.watch import Patience, Watch, reason_to_poll
from spolia.indexing.readers.registry import READERS
from spolia.stores.corpus import Corpus

pytestmark = pytest.mark.slow

WAIT_S = 30.0
Start = Callable[..., "Watching"]


class Watching:
    """The command in a process of its own."""

    def __init__(self, *arguments: object, env: Mapping[str, str] | None = None) -> None:
        command = [sys.executable, "-u", "-m", "spolia", *map(str, arguments)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env)
        self.said: list[str] = []
        self._lines: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line.rstrip("\n"))
        self._lines.put(None)

    def until(self, part: str) -> str:
        """The next line with this in it."""
        while (line := self._lines.get(timeout=WAIT_S)) is not None:
            self.said.append(line)
            if part in line:
                return line
        raise AssertionError(f"it ended without saying {part!r}: {self.said}")

    def end(self, number: int = signal.SIGINT) -> int:
        self.process.send_signal(number)
        code = self.process.wait(WAIT_S)
        while (line := self._lines.get(timeout=WAIT_S)) is not None:
            self.said.append(line)
        return code


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    new_folder = tmp_path / "notes"
    new_folder.mkdir()
    (new_folder / "salt.txt").write_text("Salt is dug in mines.")
    (new_folder / "tides.txt").write_text("The moon pulls.")
    return new_folder


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "n.spolia"


@pytest.fixture
def start(folder: Path, store: Path) -> Iterator[Start]:
    started: list[Watching] = []

    def begin(*options: str) -> Watching:
        arguments = ("sync", folder, "--store", store, "--no-vectors", "--watch", "--every", "0.05", *options)
        watching = Watching(*arguments)
        started.append(watching)
        watching.until("watching")
        return watching

    yield begin
    for begun in started:
        if begun.process.poll() is None:
            begun.process.kill()
            begun.process.wait()


def put(path: Path, text: str) -> None:
    """A file, there at once as a whole."""
    path.with_name(".new").write_text(text)
    os.replace(path.with_name(".new"), path)


def test_changes_of_all_kinds_are_followed(start: Start, folder: Path, store: Path) -> None:
    watching = start()
    put(folder / "new.txt", "Whelks live under the pier.")
    watching.until("added    new.txt")
    put(folder / "salt.txt", "Salt is sold, too.")
    watching.until("changed  salt.txt")
    (folder / "tides.txt").rename(folder / "moon.txt")
    watching.until("moved    moon.txt")
    (folder / "new.txt").unlink()
    watching.until("removed  new.txt")
    assert watching.end() == 0
    assert set(Corpus(str(store)).latest().sources()) == {"salt.txt", "moon.txt"}
    assert Corpus(str(store)).latest().check() == []


def test_a_broken_file_is_said_once_and_again_when_it_changes(start: Start, folder: Path) -> None:
    watching = start()
    put(folder / "broken.pdf", "no PDF")
    watching.until("failed   broken.pdf: is not a readable PDF")
    put(folder / "new.txt", "Whelks live under the pier.")
    watching.until("added    new.txt")
    put(folder / "broken.pdf", "no PDF either")
    watching.until("failed   broken.pdf: ")
    (folder / "broken.pdf").unlink()
    watching.until("removed  broken.pdf")
    assert watching.end(signal.SIGTERM) == 0
    assert "error" not in watching.said[-1]


def test_a_vanished_folder_and_a_busy_store_are_waited_for(start: Start, folder: Path, store: Path) -> None:
    watching = start()
    folder.rename(folder.with_name("away"))
    watching.until("There is no folder")
    folder.with_name("away").rename(folder)
    with Corpus(str(store)).writer():
        put(folder / "new.txt", "Whelks live under the pier.")
        watching.until("Watching goes on")
    watching.until("added    new.txt")
    assert watching.end() == 0


def test_an_emptied_folder_forgets_nothing(start: Start, folder: Path, store: Path) -> None:
    watching = start()
    for path in folder.iterdir():
        path.unlink()
    watching.until("is empty")
    assert watching.end() == 0
    assert set(Corpus(str(store)).latest().sources()) == {"salt.txt", "tides.txt"}


def test_an_emptied_folder_is_followed_when_other_files_come(start: Start, folder: Path, store: Path) -> None:
    watching = start()
    for path in folder.iterdir():
        path.unlink()
    watching.until("is empty")
    put(folder / "new.txt", "Whelks live under the pier.")
    watching.until("added    new.txt")
    assert watching.end() == 0
    assert set(Corpus(str(store)).latest().sources()) == {"new.txt"}


def test_programs_read_one_object_a_line(start: Start, folder: Path) -> None:
    watching = start("--json")
    put(folder / "new.txt", "Whelks live under the pier.")
    line = watching.until('"new.txt"')
    record: dict[str, Any] = json.loads(line)
    assert record["changes"] == [{"change": "added", "uri": "new.txt", "reason": ""}]
    assert watching.end() == 0


def test_a_wrong_folder_ends_it_at_once(tmp_path: Path, store: Path) -> None:
    command = [sys.executable, "-m", "spolia", "sync", str(tmp_path / "nope"), "--store", str(store), "--watch"]
    assert subprocess.run(command, capture_output=True, check=False, timeout=WAIT_S).returncode == 2


def test_changes_are_told_by_the_file_system_and_not_looked_for(start: Start, folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("watchfiles")
    watching = start("--every", "600")
    assert watching.said[-1] == f"watching {folder}; Ctrl-C ends it"
    put(folder / "new.txt", "Whelks live under the pier.")
    watching.until("added    new.txt")
    (folder / "deep").mkdir()
    put(folder / "deep" / "salt.txt", "Salt is sold, too.")
    watching.until("added    deep/salt.txt")
    (folder / "deep").rename(tmp_path / "away")
    watching.until("removed  deep/salt.txt")
    assert watching.end(signal.SIGTERM) == 0


def test_a_folder_that_was_replaced_is_watched_again(start: Start, folder: Path) -> None:
    pytest.importorskip("watchfiles")
    watching = start("--every", "0.5")
    folder.rename(folder.with_name("away"))
    folder.mkdir()
    put(folder / "other.txt", "Whelks live under the pier.")
    watching.until("added    other.txt")
    put(folder / "new.txt", "Salt is sold, too.")
    watching.until("added    new.txt")
    assert watching.end() == 0


def test_without_the_package_the_folder_is_looked_at_and_that_is_said(
    tmp_path: Path, folder: Path, store: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import importlib.util as util\nfind = util.find_spec\n"
        "util.find_spec = lambda name, package=None: None if name == 'watchfiles' else find(name, package)\n"
    )
    arguments = ("sync", folder, "--store", store, "--no-vectors", "--watch", "--every", "0.05")
    watching = Watching(*arguments, env=os.environ | {"PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"})
    message = watching.until("watching")
    assert f"watching {folder}, every 0.05 s (to get changes from the file system instead, write: " in message
    assert "watch" in message.partition("write: ")[2]
    put(folder / "new.txt", "Whelks live under the pier.")
    watching.until("added    new.txt")
    assert watching.end() == 0


def test_where_too_many_folders_are_watched_they_are_looked_at(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def watch_folders(folders: object, every_s: float) -> Iterator[bool]:
        raise OSError("OS file watch limit reached")
        yield False

    monkeypatch.setattr("spolia.cli.watch.watch_folders", watch_folders)
    watch = Watch(Screen(json=False), [folder], lambda: None, 0.05, (), follow_links=False, readers=READERS)  # type: ignore[arg-type, return-value]
    assert list(islice(watch._events(), 3)) == [True] * 3
    assert (
        "does not report changes: OS file watch limit reached. Spolia scans the folders instead."
        in capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("folder", "kind"),
    [
        ("/home/ann/notes", ""),
        ("/mnt/share/notes", "nfs4"),
        ("/mnt/my share", "cifs"),
        ("/mnt/ssh/a", "fuse.sshfs"),
        ("/mnt/usb/a", ""),
        ("/mnt", "nfs4"),
        ("/mnt/sharer", ""),
    ],
)
def test_file_systems_that_tell_of_no_changes_are_looked_at(tmp_path: Path, folder: str, kind: str) -> None:
    pytest.importorskip("watchfiles")
    mounts = tmp_path / "mountinfo"
    mounts.write_text(
        "1 0 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
        "2 1 0:5 / /mnt/share rw - nfs4 host:/x rw\n"
        "3 1 0:6 / /mnt/my\\040share rw shared:2 master:1 - cifs //host/x rw\n"
        "4 1 0:7 / /mnt/ssh rw - fuse.sshfs host: rw\n"
        "5 1 0:8 / /mnt/usb rw - fuseblk /dev/sdb rw\n"
    )
    reason = f"{folder} is on {kind}, which does not report changes made elsewhere" if kind else ""
    assert reason_to_poll([Path(folder)], mounts) == reason


def test_patience_doubles(monkeypatch: pytest.MonkeyPatch) -> None:
    now, tried = [0.0], []
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    patience = Patience(1.0)
    patience.record_failures({"a"}, tried=True)
    for second in range(40):
        now[0] = float(second)
        if patience.is_retry_due:
            tried.append(second)
            patience.record_failures({"a"}, tried=True)
    assert tried == [1, 3, 7, 15, 31]
    patience.record_failures({"a", "b"}, tried=False)
    now[0] = 41.0
    assert patience.is_retry_due
    patience.record_failures((), tried=True)
    now[0] = 9999.0
    assert not patience.is_retry_due


def test_other_readers_are_followed_and_a_file_of_them_that_is_not_whole_is_waited_for(
    start: Start, folder: Path, store: Path, tmp_path: Path
) -> None:
    readers = tmp_path / "readers.txt"
    put(readers, "* = everybody\n")
    watching = start("--readers", str(readers))
    put(readers, "salt.txt = ann\n")
    watching.until("does not say who may read 'tides.txt'")
    assert {
        document.uri: document.readers for document in Corpus(str(store)).latest().documents(frozenset({"ann"}))
    } == {
        "salt.txt": (),
        "tides.txt": (),
    }
    put(readers, "salt.txt = ann\n* = everybody\n")
    watching.until("changed  salt.txt")
    assert [document.uri for document in Corpus(str(store)).latest().documents()] == ["tides.txt"]
    assert watching.end() == 0


def test_a_file_of_groups_that_is_being_written_is_waited_for(
    start: Start, folder: Path, store: Path, tmp_path: Path
) -> None:
    groups = tmp_path / "groups.yaml"
    small = "small:\n  transform: {Sentences: {size: %s}}\n"
    put(groups, small % 100)
    watching = start("--groups", str(groups))
    put(groups, "small:\n  transfor")
    watching.until("groups.yaml")
    put(folder / "new.txt", "Whelks live under the pier.")
    put(groups, small % 20)
    watching.until("Sentences.size: 100 there, 20 here")
    put(groups, small % 100)
    watching.until("added    new.txt")
    assert watching.end() == 0


def test_sources_are_looked_at_again_after_a_while(
    folder: Path, store: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from spolia.cli.ingest import index_folder
    from spolia.cli.screen import Screen
    from spolia.cli.store_options import StoreOptions

    making, uri = StoreOptions(str(store), [f"file://{folder}"], vectors=False), f"file://{folder}/new.txt"
    slept: list[float] = []
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += 45.0
        if len(slept) == 1:
            put(folder / "new.txt", "Whelks live under the pier.")
        elif len(slept) == 2:
            assert uri not in Corpus(str(store)).latest().sources()
        else:
            raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", sleep)
    screen = Screen(json=False)

    def run(**settings: Any) -> Any:
        return index_folder(screen, making, **settings)

    report, _ = run()
    assert Watch(screen, making.places(), run, 2.0, (), follow_links=False, readers=READERS).follow(report) == 0
    assert set(slept) == {2.0}
    assert f"added    {uri}" in capsys.readouterr().out
    assert uri in Corpus(str(store)).latest().sources()
