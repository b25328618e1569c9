"""Libraries that read many formats. Xberg is asked where it is installed; Docling, which fetches models, is played."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from spolia.errors import DocumentError, EncryptedDocument, MissingExtra
from spolia.indexing.readers.converters import DoclingReader, PandocReader, XbergReader, pandoc_program
from spolia.indexing.readers.reader import Blob, FileReader, reader_of
from spolia.indexing.readers.registry import by_suffix
from tests.indexing.readers.fixtures import FIXTURES

PAGES = ["# Old Stones\n\nBasalt is dark.", "", "| stone | t |\n|---|---|\n| basalt | 3.0 |"]


def expect_pages(reader: FileReader) -> None:
    """What both make of three pages of Markdown."""
    reading = reader.read(Blob("in/a.pdf", b"x"))
    document = reading.document
    assert document.text == "\n\n".join(PAGES)
    assert [document.text[start : start + 3] for start in document.pages] == ["# O", "\n\n|", "| s"]
    assert document.regions[0].rows == (("stone", "t"), ("basalt", "3.0"))
    assert (document.title, reading.empty_pages) == ("Old Stones", (2,))
    assert document.id.endswith(f".{reader.name}")


# ------------------------------------------------------------------------------------------------------------ Docling


def play_docling(monkeypatch: pytest.MonkeyPatch, convert: Any) -> None:
    """Docling's names that the reader uses, as its documentation of version 2 describes them."""
    models, converter = ModuleType("docling.datamodel.base_models"), ModuleType("docling.document_converter")
    models.DocumentStream = lambda *, name, stream: (name, stream.read())  # type: ignore[attr-defined]
    converter.DocumentConverter = lambda: SimpleNamespace(convert=convert)  # type: ignore[attr-defined]
    for name in ("docling", "docling.datamodel"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, models.__name__, models)
    monkeypatch.setitem(sys.modules, converter.__name__, converter)


def test_docling_is_asked_page_by_page(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []

    def convert(source: Any, *, raises_on_error: bool, max_num_pages: int) -> Any:
        calls.append((source, raises_on_error, max_num_pages))
        document = SimpleNamespace(
            pages={2: None, 1: None, 3: None}, export_to_markdown=lambda page_no=0: PAGES[page_no - 1]
        )
        return SimpleNamespace(document=document, errors=[SimpleNamespace(error_message="a page was dark")])

    play_docling(monkeypatch, convert)
    expect_pages(DoclingReader())
    assert calls == [(("a.pdf", b"x"), True, 5000)]
    assert DoclingReader().read(Blob("a.pdf", b"x")).warnings == ("Docling: a page was dark",)


def test_what_docling_raises_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def convert(source: Any, **options: Any) -> Any:
        raise RuntimeError("Incorrect password error" if source[1] == b"locked" else "models are missing")

    play_docling(monkeypatch, convert)
    with pytest.raises(DocumentError, match=r"a\.pdf could not be read by Docling: RuntimeError: models are missing"):
        DoclingReader().read(Blob("a.pdf", b"x"))
    with pytest.raises(EncryptedDocument):
        DoclingReader().read(Blob("a.pdf", b"locked"))


# ------------------------------------------------------------------------------------------------------------ Xberg


def play_xberg(monkeypatch: pytest.MonkeyPatch, extract: Any) -> None:
    module: Any = ModuleType("xberg")
    module.ExtractionConfig = module.PageConfig = module.ExtractInput = lambda **how: SimpleNamespace(**how)
    module.extract = extract
    monkeypatch.setitem(sys.modules, "xberg", module)


def test_xberg_is_asked_for_pages_of_markdown_also_where_a_loop_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []

    async def extract(given: Any, options: Any) -> Any:
        calls.append((given, options))
        names = ("title", "authors", "created_at", "modified_at", "subject", "keywords", "language")
        metadata = SimpleNamespace(**dict.fromkeys(names), errors=[])
        pages = [SimpleNamespace(content=page) for page in PAGES]
        extraction = SimpleNamespace(content="all", pages=pages, metadata=metadata, processing_warnings=[])
        return SimpleNamespace(results=[extraction], errors=[])

    play_xberg(monkeypatch, extract)

    async def within_a_loop() -> None:
        expect_pages(XbergReader())

    asyncio.run(within_a_loop())
    extract_input, options = calls[0]
    assert (extract_input.kind, extract_input.bytes, extract_input.filename) == ("bytes", b"x", "a.pdf")
    assert (options.output_format, options.use_cache, options.disable_ocr) == ("markdown", False, True)


def test_what_xberg_raises_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    async def extract(given: Any, options: Any) -> Any:
        if given.bytes == b"none":
            return SimpleNamespace(results=[], errors=[SimpleNamespace(message="nothing there")])
        raise RuntimeError("PDF is encrypted and requires a password" if given.bytes == b"locked" else "broken")

    play_xberg(monkeypatch, extract)
    for data, message in ((b"x", "broken"), (b"none", "nothing there")):
        with pytest.raises(DocumentError, match=rf"a\.pdf could not be read by Xberg: {message}"):
            XbergReader().read(Blob("a.pdf", data))
    with pytest.raises(EncryptedDocument):
        XbergReader().read(Blob("a.pdf", b"locked"))


@pytest.mark.parametrize("name", ["a.docx", "a.rtf", "a.html"])
def test_xberg_itself(name: str) -> None:
    pytest.importorskip("xberg")
    document = XbergReader().read(Blob(name, FIXTURES[name]())).document
    assert "Basalt is" in document.text
    assert document.regions[0].rows[1] == ("basalt", "3.0")


# ------------------------------------------------------------------------------------------------------------ pandoc


def play_pandoc(monkeypatch: pytest.MonkeyPatch, folder: Path, script: str) -> None:
    """A program on the PATH in place of pandoc."""
    program = folder / "pandoc"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


@pytest.mark.slow
def test_what_pandoc_writes_is_read_as_markdown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    page = "---\nauthor: Ann\ntitle: Old Stones\n---\n\n# Walls\n\n| stone | t |\n|---|---|\n| basalt | 3.0 |\n"
    (tmp_path / "page.md").write_text(page)
    play_pandoc(
        monkeypatch, tmp_path, f'cat >/dev/null; echo "$@" >{tmp_path}/asked; echo careful >&2; cat {tmp_path}/page.md'
    )
    reading = PandocReader().read(Blob("in/a.TEX", b"x"))
    document = reading.document
    assert (document.title, document.meta, document.text) == ("Old Stones", (("author", "Ann"),), page)
    assert [heading.text for heading in document.headings] == ["Walls"]
    assert document.regions[0].rows == (("stone", "t"), ("basalt", "3.0"))
    assert (document.id.endswith(".pandoc"), reading.warnings) == (True, ("pandoc: careful",))
    arguments = (tmp_path / "asked").read_text().split()
    assert {"--sandbox", "--from=latex", "-M1024M"} <= set(arguments)


@pytest.mark.slow
def test_what_pandoc_refuses_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    play_pandoc(monkeypatch, tmp_path, "cat >/dev/null; echo 'Error at line 2' >&2; exit 64")
    with pytest.raises(DocumentError, match=r"a\.tex could not be read by pandoc: Error at line 2"):
        PandocReader().read(Blob("a.tex", b"x"))
    play_pandoc(monkeypatch, tmp_path, "exec sleep 9")
    with pytest.raises(DocumentError, match=r"took more than 0\.1 s"):
        PandocReader(timeout_s=0.1).read(Blob("a.tex", b"x"))
    with pytest.raises(DocumentError, match=r"format='docbook'"):
        PandocReader().read(Blob("a.xyz", b"x"))


def test_pandoc_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("spolia.indexing.readers.converters.find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"a\.tex needs the program pandoc.*spolia\[pandoc\]"):
        PandocReader().read(Blob("a.tex", b"x"))


@pytest.mark.slow
def test_pandoc_itself() -> None:
    try:
        pandoc_program("This test")
    except MissingExtra as error:
        pytest.skip(str(error))
    source = rb"""\newcommand{\acme}{ACME Corp}\title{The \acme{} report}\begin{document}\maketitle
\section{Walls of \acme} \verb|50%| of \url{http://a.b/c%20d}, $x^2$.
\iffalse never \fi \input{/etc/passwd}
\begin{tabular}{ll} stone & t \\ \hline basalt & 3.0 \end{tabular} \end{document}"""
    document = PandocReader().read(Blob("a.tex", source)).document
    assert (document.title, [heading.text for heading in document.headings]) == (
        "The ACME Corp report",
        ["Walls of ACME Corp"],
    )
    assert "`50%` of <http://a.b/c%20d>, $x^2$." in document.text
    assert "never" not in document.text
    assert "root:" not in document.text
    assert document.regions[0].rows[-1] == ("basalt", "3.0")


@pytest.mark.parametrize(("reader", "extra"), [(XbergReader(), "xberg"), (DoclingReader(), "docling")])
def test_what_is_not_installed_is_named(reader: FileReader, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("xberg", "docling", "docling.datamodel.base_models"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtra, match=rf"spolia\[{extra}\]"):
        reader.read(Blob("a.pdf", b"x"))


def test_they_read_what_they_are_asked_to() -> None:
    readers = by_suffix({"*.pdf": DoclingReader(), "*.doc": XbergReader()})
    assert reader_of("a.pdf", readers) == DoclingReader()
    assert reader_of("a.doc", readers) == XbergReader()
    assert reader_of("a.doc", by_suffix()) is None
