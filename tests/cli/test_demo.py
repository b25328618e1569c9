"""What `make demo` runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from spolia.cli.demo import DOCS, demo
from spolia.cli.exit_codes import Exit
from spolia.errors import WeightsError

TEXTS = {
    "tides.md": "# The cause of tides\n\nThe cause of the tides is the pull of the moon. Ships wait for the tide.",
    "mines.md": "# Salt and its mines\n\nSalt and coal are dug in mines. The mines are near the border of the country.",
    "owls.md": "# Owls of the night\n\nOwls of the night sleep by day. They hunt mice.",
    "short.txt": "Nothing much.",
}


def no_weights(given: str = "") -> None:
    raise WeightsError("There are none here.")


@pytest.mark.slow
def test_a_folder_answers_three_questions_and_says_what_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("spolia.cli.ingest.find", no_weights)
    (tmp_path / "notes").mkdir()
    for name, text in TEXTS.items():
        (tmp_path / "notes" / name).write_text(text)
    (tmp_path / "notes" / "broken.pdf").write_bytes(b"%PDF-1.4 and nothing else")
    assert demo(["notes"]) == Exit.DONE
    out = capfd.readouterr().out
    assert out.count("$ spolia ask ") == 3
    assert "[1] " in out
    assert 'spolia ask "…" --store .demo/notes.spolia' in out.partition("Next:")[2]


@pytest.mark.slow
def test_the_projects_docs_answer_their_questions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "docs").symlink_to(Path(__file__).parents[2] / "docs")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("spolia.cli.ingest.find", no_weights)
    assert demo() == Exit.DONE
    indexed, *answers = capfd.readouterr().out.partition("\nNext:")[0].split("\n$ spolia ask ")
    store = ".demo/docs-how-to-docs-concepts.spolia"
    assert indexed.startswith(f"$ spolia index docs/how-to docs/concepts --store {store}\n")
    parts = ("published data stays", "A moved file costs nothing.", "a document without readers is public")
    for answer, part in zip(answers, parts, strict=True):
        assert part in answer.partition("[1]")[0]


@pytest.mark.parametrize("folder", DOCS)
def test_of_the_projects_docs_the_demo_indexes_pages_alone(folder: str) -> None:
    assert {path.suffix for path in (Path(__file__).parents[2] / folder).rglob("*") if path.is_file()} == {".md"}


@pytest.mark.slow
def test_folders_of_the_same_name_have_stores_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("spolia.cli.ingest.find", no_weights)
    for parent, name in (("a", "owls.md"), ("b", "mines.md")):
        (tmp_path / parent / "notes").mkdir(parents=True)
        (tmp_path / parent / "notes" / name).write_text(TEXTS[name])
        assert demo([f"{parent}/notes"]) == Exit.DONE
    assert "--store .demo/b-notes.spolia" in capfd.readouterr().out
