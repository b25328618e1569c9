"""Sources that a file describes, on the command line."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from spolia.cli.app import build_app
from spolia.cli.sources import parse_sources
from spolia.core.environment import allow_env
from spolia.errors import FlowFileError, SourceError
from spolia.indexing.sources.remote_files import RemoteFiles
from spolia.indexing.sources.sql import SQLRows
from spolia.indexing.sources.web import WebPages
from tests.indexing.sources.site import Site

PAGE = Path(__file__).resolve().parents[3] / "docs" / "how-to" / "sources.md"

app = build_app()


def test_the_example_of_the_page_is_read(tmp_path: Path) -> None:
    (example,) = re.findall(r"^```text\n(- .*?)^```$", PAGE.read_text(), re.M | re.S)
    (tmp_path / "sources.yaml").write_text(example)
    with allow_env("HANDBOOK_TOKEN", "DB_PASSWORD"):
        web, files, rows, _ = parse_sources([], tmp_path / "sources.yaml")
    assert isinstance(web, WebPages)
    assert web.headers == (("Authorization", "Bearer ${HANDBOOK_TOKEN}"),)
    assert files == RemoteFiles("s3://archive/minutes", (("anon", True),))
    assert isinstance(rows, SQLRows)
    assert rows.text == "{question}\n\n{answer}"


def test_what_is_named_is_told_apart() -> None:
    sources = parse_sources(["docs", "https://example.org/a", "s3://bucket/docs"], None)
    assert sources == [Path("docs"), WebPages(("https://example.org/a",)), RemoteFiles("s3://bucket/docs")]
    with pytest.raises(SourceError, match="Nothing is named"):
        parse_sources([], None)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("- WebPages: {start: [https://a.org]}\n- WebPages: {start: [ftp://a]}\n", "line 2.*'ftp://a' is not a page"),
        ("- SQLRows:\n    name: a\n    url: sqlite:///a\n    rows: a\n    key: id\n    txt: a\n", "line 6.*txt"),
        ("- SQLRows:\n    name: a\n    key: 3\n", "line 3.*text"), ("- Identity\n", "line 1.*Source"),
        ("- [a\n", "line 2.*not YAML"), ("", "is empty"), ("a: b\n", "line 1.*list"),
    ],
)  # fmt: skip
def test_a_wrong_file_is_refused_with_the_line(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "sources.yaml").write_text(text)
    with pytest.raises(FlowFileError, match=said):
        parse_sources([], tmp_path / "sources.yaml")


@pytest.mark.slow
def test_the_command_takes_folders_and_sources(tmp_path: Path, site: Site) -> None:
    site.set_answer("/a", "On a site.", "text/plain")
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.txt").write_text("In a folder.")
    described = [{"WebPages": {"start": [site.url("/a"), site.url("/b")], "allow": [site.host], "delay_s": 0.0}}]
    rows = {"name": "n", "url": f"sqlite:///{tmp_path}/no.db", "rows": "n", "key": "k", "text": "t"}
    (tmp_path / "sources.yaml").write_text(json.dumps([*described, {"SQLRows": rows}]))
    store = str(tmp_path / "all.spolia")
    command = ["index", str(tmp_path / "docs"), "--sources", str(tmp_path / "sources.yaml"), "--store", store]
    ran = CliRunner().invoke(app, [*command, "--no-vectors", "--json"])
    report = json.loads(ran.stdout)
    assert (ran.exit_code, report["added"]) == (5, 2)
    assert [row["uri"] for row in report["failed"]] == ["sql://n/"]
    assert [row["uri"] for row in report["skipped"]] == [site.url("/b")]
    ran = CliRunner().invoke(
        build_app(), ["index", "--sources", str(tmp_path / "sources.yaml"), "--store", store, "--json"]
    )
    assert json.loads(ran.stdout)["removed"] == 0


@pytest.mark.slow
def test_the_command_reads_an_address(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.txt").write_text("In a folder.")
    command = ["index", f"file://{tmp_path}/docs", "--store", str(tmp_path / "all.spolia"), "--no-vectors", "--json"]
    assert json.loads(CliRunner().invoke(app, command).stdout)["added"] == 1
    command[1] = "http://127.0.0.1:9/"
    ran = CliRunner().invoke(app, command)
    assert ran.exit_code == 5
    assert "loopback" in json.loads(ran.stdout)["failed"][0]["reason"]
