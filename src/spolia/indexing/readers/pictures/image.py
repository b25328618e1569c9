"""Pictures: their text, read with Tesseract where that program is installed.

What opens files needs an extra, so it is loaded with the first file.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from itertools import groupby, pairwise
from math import fsum
from typing import TYPE_CHECKING, Any

from spolia.core.patterns import pattern
from spolia.errors import installed
from spolia.indexing.readers import pdf, pictures
from spolia.indexing.readers.reader import Blob, Reading
from spolia.types import Value

if TYPE_CHECKING:
    from spolia.indexing.readers.pdf.lines import PageLine


_PROGRAM = "tesseract"
_INSTALL = "apt-get install tesseract-ocr, brew install tesseract, or https://tesseract-ocr.github.io"
_LEAST_SURE = 30.0
"""Percent. What Tesseract is less sure of are mostly stains and drawings that it takes for letters."""
_LEAST_SURE_PAGE = 40.0
_POINTS = 72.0
_BROKEN = pattern(r"(?<=\w)[-¬]$")
_UNSPACED = pattern(r"(?<=[\u3001-\u30ff\u3400-\u9fff\uff00-\uffef]) (?=[\u3001-\u30ff\u3400-\u9fff\uff00-\uffef])")


@dataclass(frozen=True)
class Recognised(Value):
    """The text recognised in a picture."""

    lines: "tuple[PageLine, ...]" = field(default=(), compare=False)  # in reading order, with their places in points
    sure: float = 0.0  # how sure Tesseract is of the words, from 0 to 100, in the mean
    why: str = ""  # nothing was found, if something went wrong


@dataclass(frozen=True)
class Ocr(Value):
    """How pictures of text are read: with Tesseract (Smith, An overview of the Tesseract OCR engine, ICDAR 2007).

    Pictures that were scanned on their side or upside down are turned.

    Args:
        languages: as Tesseract names them, the most frequent first: `("eng", "deu")`.
        dpi: dots per inch at which pages of a PDF are drawn for it.
        timeout_s: seconds for one page.
    """

    languages: tuple[str, ...] = ("eng",)
    dpi: int = 300
    timeout_s: float = 60.0

    def lacking(self) -> str:
        """What is missing before a picture can be read, and how to get it; empty if nothing is."""
        there = _languages(shutil.which(_PROGRAM) or "")
        if not there:
            return f"Tesseract is not installed ({_INSTALL})"
        missing = [language for language in self.languages if language not in there]
        if missing:
            named = " ".join(f"tesseract-ocr-{language.replace('_', '-')}" for language in missing)
            return f"Tesseract does not know the languages {', '.join(missing)} (apt-get install {named})"
        return ""

    def recognise(self, pixels: Any, dpi: float) -> Recognised:
        """The text in a picture. `pixels`: height × width bytes of grey, 0 is black. `dpi`: its dots per inch, by which
        places are given in points."""
        height, width = pixels.shape
        picture = b"P5 %d %d 255\n" % (width, height) + pixels.tobytes()  # netpbm: nothing to compress or to decode
        try:
            found = subprocess.run(self._command(dpi), input=picture, capture_output=True, timeout=self.timeout_s,
                                   env={**os.environ, "OMP_THREAD_LIMIT": "1"}, check=False)  # fmt: skip
        except subprocess.TimeoutExpired:
            return Recognised(why=f"Tesseract took more than {self.timeout_s:g} s")
        except OSError as error:
            return Recognised(why=f"Tesseract could not be started: {error}")
        if found.returncode:
            said = found.stderr.decode("utf-8", "replace").strip().splitlines()
            return Recognised(why=f"Tesseract failed: {said[-1] if said else f'it ended with {found.returncode}'}")
        return _recognised(found.stdout.decode("utf-8", "replace"), _POINTS / dpi)

    def _command(self, dpi: float) -> list[str]:
        there = _languages(shutil.which(_PROGRAM) or "")
        layout = "1" if "osd" in there else "3"  # with orientation, if its data are there
        languages = "+".join(self.languages)
        return [_PROGRAM, "stdin", "stdout", "-l", languages, "--psm", layout, "--dpi", f"{dpi:.0f}", "tsv"]


OCR = Ocr()


@cache
def _languages(program: str) -> frozenset[str]:
    """The languages that are installed; none without the program."""
    if not program:
        return frozenset()
    try:
        listed = subprocess.run([program, "--list-langs"], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return frozenset()
    return frozenset(line.strip() for line in listed.stdout.splitlines()[1:])


def _recognised(table: str, scale: float) -> Recognised:
    """The lines of Tesseract's table: a row for each word, with its block, paragraph, line, place and sureness."""
    words = [fields for row in table.splitlines()[1:] if len(fields := row.split("\t", 11)) == 12 and fields[0] == "5"]
    words = [fields for fields in words if fields[11].strip() and float(fields[10]) >= 0]
    found = [line for _, group in groupby(words, lambda fields: fields[1:5]) for line in _line(list(group), scale)]
    sure = _sureness(words) if words else 0.0
    if 0 < sure < _LEAST_SURE_PAGE:
        return Recognised(sure=sure, why=f"Tesseract is sure of {sure:.0f} % of it only; name the languages in it")
    return Recognised(tuple(_marked([line for line in found if line.text])), sure)


def _sureness(words: list[list[str]]) -> float:
    return fsum(float(fields[10]) for fields in words) / len(words)


def _line(words: list[list[str]], scale: float) -> "Iterator[PageLine]":
    if _sureness(words) < _LEAST_SURE:
        return
    areas = [
        pdf.geometry.Area(left * scale, top * scale, (left + width) * scale, (top + height) * scale)
        for left, top, width, height in ([int(value) for value in fields[6:10]] for fields in words)
    ]
    yield pdf.lines.PageLine(
        _UNSPACED.sub("", " ".join(fields[11].strip() for fields in words)), pdf.geometry.Area.around(areas)
    )


def _marked(lines: "list[PageLine]") -> "list[PageLine]":
    """A hyphen at the end of a line before a small letter is the mark of a broken word."""
    for line, following in pairwise(lines):
        if following.text[0].islower():
            line.text = _BROKEN.sub(pdf.lines.HYPHEN, line.text)
    return lines


@dataclass(frozen=True)
class ImageReader(Value):
    """Reads PNG, JPEG, GIF, WebP, TIFF and BMP: the description in the file, then the text that Tesseract finds.

    The whole document is one region with the picture, so that it can be a node of its own. The pages of a TIFF are
    pages; of an animation the first picture is read.

    Args:
        ocr: how text is recognised, if Tesseract is installed; None for not at all.
    """

    ocr: Ocr | None = OCR

    name = "image"
    version = 1
    media_type = "image"
    suffixes = (".png", ".jpg", ".jpeg", ".gif", ".webp", ".tif", ".tiff", ".bmp")
    apart = True

    def read(self, blob: Blob, /) -> Reading:
        with installed("images", "pillow and pypdfium2", f"Reading {blob.uri}"):
            pages = pictures.pages
        return pages.reading_of(self, blob)

    def lacking(self) -> str:
        """What is missing to read the text in pictures."""
        return self.ocr.lacking() if self.ocr else ""
