"""Files of records that several processes have open."""

from __future__ import annotations

import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from spolia.private_files import touch
from spolia.record_files import connect, damage

OTHER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
connection.execute("SELECT * FROM notes").fetchall()
connection.close()
"""


@pytest.mark.slow
def test_a_file_stays_in_use_for_other_processes_while_it_is_checked_here(tmp_path: Path) -> None:
    path = tmp_path / "records.db"
    with closing(connect(path, "", timeout_s=5)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE notes (text TEXT)")
        connection.execute("INSERT INTO notes VALUES ('kept')")
        connection.commit()
        connect(path, "", timeout_s=5).close()
        touch(path)
        assert damage(path) == ""
        subprocess.run([sys.executable, "-c", OTHER, path], check=True, timeout=600)
        assert Path(f"{path}-wal").exists()  # the last process that closes a database removes its log
        assert connection.execute("SELECT text FROM notes").fetchall() == [("kept",)]


def test_damage_is_the_first_fault_in_a_line(tmp_path: Path) -> None:
    path = tmp_path / "records.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE notes (text TEXT)")
        connection.executemany("INSERT INTO notes VALUES (?)", [("kept " * 200,)] * 50)
    with path.open("r+b") as file:
        file.seek(4096 + 100)
        file.write(b"\xff" * 9000)
    assert re.fullmatch(rf"{re.escape(str(path))} is damaged: \S.*", damage(path))
