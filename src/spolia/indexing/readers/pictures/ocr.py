"""Recognition of text in pictures by Tesseract, where it is installed."""

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
from spolia.indexing.readers import pdf
from spolia.types import Value

if TYPE_CHECKING:
    from spolia.indexing.readers.pdf.lines import PageLine


_PROGRAM = "tesseract"
_INSTALL = "apt-get install tesseract-ocr, brew install tesseract, or https://tesseract-ocr.github.io"
_MINIMUM_CONFIDENCE = 30.0
"""Percent. What Tesseract is less sure of are mostly stains and drawings that it takes for letters."""
_MINIMUM_PAGE_CONFIDENCE = 40.0
_POINTS = 72.0
_BROKEN_WORD = pattern(r"(?<=\w)[-¬]$")
_CJK_SPACE = pattern(r"(?<=[\u3001-\u30ff\u3400-\u9fff\uff00-\uffef]) (?=[\u3001-\u30ff\u3400-\u9fff\uff00-\uffef])")


@dataclass(frozen=True)
class Recognition(Value):
    """Text recognised in a picture."""

    lines: "tuple[PageLine, ...]" = field(default=(), compare=False)  # in reading order, with their places in points
    confidence: float = 0.0  # how sure Tesseract is of the words, from 0 to 100, in the mean
    failure: str = ""  # nothing was found, if something went wrong


@dataclass(frozen=True)
class Ocr(Value):
    """Recognition of text with Tesseract (Smith, An overview of the Tesseract OCR engine, ICDAR 2007).

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
        """Return what is missing to read a picture, and how to get it; empty if nothing is."""
        known_languages = _installed_languages(shutil.which(_PROGRAM) or "")
        if not known_languages:
            return f"Tesseract is not installed ({_INSTALL})"
        missing = [language for language in self.languages if language not in known_languages]
        if missing:
            packages = " ".join(f"tesseract-ocr-{language.replace('_', '-')}" for language in missing)
            return f"Tesseract does not know the languages {', '.join(missing)} (apt-get install {packages})"
        return ""

    def recognise(self, pixels: Any, dpi: float) -> Recognition:
        """Recognise the text in a picture. `pixels`: height × width bytes of grey, 0 is black. `dpi`: its dots per
        inch, by which places are given in points."""
        height, width = pixels.shape
        picture = b"P5 %d %d 255\n" % (width, height) + pixels.tobytes()  # netpbm: nothing to compress or to decode
        try:
            process = subprocess.run(self._command(dpi), input=picture, capture_output=True, timeout=self.timeout_s,
                                   # Several processes read files at the same time;
                                   # more threads in each only compete.
                                   env={**os.environ, "OMP_THREAD_LIMIT": "1"}, check=False)  # fmt: skip
        except subprocess.TimeoutExpired:
            return Recognition(failure=f"Tesseract took more than {self.timeout_s:g} s")
        except OSError as error:
            return Recognition(failure=f"Tesseract could not be started: {error}")
        if process.returncode:
            messages = process.stderr.decode("utf-8", "replace").strip().splitlines()
            return Recognition(
                failure=f"Tesseract failed: {messages[-1] if messages else f'it ended with {process.returncode}'}"
            )
        return _parse_table(process.stdout.decode("utf-8", "replace"), _POINTS / dpi)

    def _command(self, dpi: float) -> list[str]:
        known_languages = _installed_languages(shutil.which(_PROGRAM) or "")
        layout = "1" if "osd" in known_languages else "3"  # with orientation, if its data are there
        languages = "+".join(self.languages)
        return [_PROGRAM, "stdin", "stdout", "-l", languages, "--psm", layout, "--dpi", f"{dpi:.0f}", "tsv"]


OCR = Ocr()


@cache
def _installed_languages(program: str) -> frozenset[str]:
    """Return the installed languages; none without the program."""
    if not program:
        return frozenset()
    try:
        # Cached: this starts a process, and is asked for every picture.
        listing = subprocess.run([program, "--list-langs"], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return frozenset()
    return frozenset(line.strip() for line in listing.stdout.splitlines()[1:])


def _parse_table(table: str, scale: float) -> Recognition:
    """Parse Tesseract's table: a row for each word, with its block, paragraph, line, place and confidence."""
    words = [fields for row in table.splitlines()[1:] if len(fields := row.split("\t", 11)) == 12 and fields[0] == "5"]
    words = [fields for fields in words if fields[11].strip() and float(fields[10]) >= 0]
    page_lines = [
        line for _, group in groupby(words, lambda fields: fields[1:5]) for line in _page_line(list(group), scale)
    ]
    confidence = _confidence(words) if words else 0.0
    if 0 < confidence < _MINIMUM_PAGE_CONFIDENCE:
        return Recognition(
            confidence=confidence,
            failure=f"Tesseract is sure of {confidence:.0f} % of it only; name the languages in it",
        )
    return Recognition(tuple(_mark_broken_words([line for line in page_lines if line.text])), confidence)


def _confidence(words: list[list[str]]) -> float:
    return fsum(float(fields[10]) for fields in words) / len(words)


def _page_line(words: list[list[str]], scale: float) -> "Iterator[PageLine]":
    if _confidence(words) < _MINIMUM_CONFIDENCE:
        return
    areas = [
        pdf.geometry.Area(left * scale, top * scale, (left + width) * scale, (top + height) * scale)
        for left, top, width, height in ([int(value) for value in fields[6:10]] for fields in words)
    ]
    yield pdf.lines.PageLine(
        _CJK_SPACE.sub("", " ".join(fields[11].strip() for fields in words)), pdf.geometry.Area.from_areas(areas)
    )


def _mark_broken_words(lines: "list[PageLine]") -> "list[PageLine]":
    """Mark a hyphen at the end of a line before a small letter as a break within a word."""
    for line, following in pairwise(lines):
        if following.text[0].islower():
            line.text = _BROKEN_WORD.sub(pdf.lines.HYPHEN, line.text)
    return lines
