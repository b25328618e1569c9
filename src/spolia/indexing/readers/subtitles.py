"""Subtitles (SubRip, WebVTT): each cue on a line, with its time."""

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise, takewhile

from spolia.core.patterns import pattern
from spolia.indexing.readers.layout import LINE, Layout
from spolia.indexing.readers.reader import Blob, Reading
from spolia.indexing.readers.text import read_source_text
from spolia.types import Value

_WEBVTT = "WEBVTT"
_CLOCK = r"(?:(\d{1,4}):)?(\d{1,2}):(\d{1,2})(?:[.,](\d{1,3}))?"
_TIMING = pattern(rf"\s*{_CLOCK}[ \t]*-->[ \t]*{_CLOCK}")
_VOICE = pattern(r"<v(?:\.[^\s<>]*)?[ \t]+([^<>]+)>")
_WORD_TIME = pattern(r"<\d[\d:.]*>")
_TAG = re.compile(r"</?(?:i|b|u|s|c|v|lang|ruby|rt|font)(?:[\s.][^<>]*)?>|<\d[\d:.]*>|\{\\[^{}]*\}", re.IGNORECASE)


@dataclass(frozen=True)
class SubtitleReader(Value):
    """Reader of subtitles. Each cue becomes a line of text and a region `segment` with its time.

    Speakers are kept (`<v Ann>` becomes `Ann: `); other tags, positions, numbers and notes are not. In captions that
    roll up, a line that the cue before showed already is not repeated. Source: https://www.w3.org/TR/webvtt1/

    >>> text = b"1\\n00:01:05,000 --> 00:01:07,500\\n<i>The moon</i>\\ncauses the tides.\\n"
    >>> document = SubtitleReader().read(Blob("a.srt", text)).document
    >>> document.text, document.regions[0].seconds, document.media_type
    ('The moon causes the tides.', (65.0, 67.5), 'application/x-subrip')
    """

    name = "subtitles"
    version = 3
    media_type = "text/vtt"
    suffixes = (".srt", ".vtt")

    def read(self, blob: Blob, /) -> Reading:
        source = read_source_text(blob)
        layout, has_cues, previous_line = Layout(), False, ""
        is_roll_up = _WORD_TIME.search(source.text) is not None

        def write(start: float, end: float, lines: list[str]) -> None:
            nonlocal previous_line
            words = [words for line in lines if (words := _plain_words(line))]
            if is_roll_up:
                words, previous_line = (
                    [line for line in words if line != previous_line],
                    words[-1] if words else previous_line,
                )
            layout.gap(LINE)
            mark = layout.mark()
            layout.write(" ".join(words))
            if words:
                # Damaged times may end before they begin.
                layout.add_region("segment", mark, seconds=(start, max(start, end)))

        for cue in _parse_cues(source.text):
            has_cues = True
            layout.attempt("cue", partial(write, *cue), partial(" ".join, cue[2]))
        warnings = source.warnings
        if not has_cues and (text := source.text.removeprefix(_WEBVTT).strip()):
            layout.write(text, is_exact=True)
            warnings += ("No line is a time such as '00:01:05,000 --> 00:01:07,500', so it was read as plain text.",)
        reading = layout.build_reading(self, blob, encoding=source.encoding, warnings=warnings)
        kind = self.media_type if source.text.startswith(_WEBVTT) else "application/x-subrip"
        return reading.but(document=reading.document.but(media_type=kind))


def _parse_cues(text: str) -> Iterator[tuple[float, float, list[str]]]:
    """Yield the start and end in seconds, and the lines, of each cue."""
    lines = text.splitlines()
    times = [(index, timing) for index, line in enumerate(lines) if (timing := _TIMING.match(line))]
    for (index, timing), (next_index, _) in pairwise((*times, (len(lines), None))):
        cue_lines = lines[index + 1 : next_index]
        if text.startswith(_WEBVTT):
            cue_lines = list(takewhile(bool, cue_lines))  # in SubRip, blank lines may stand within a cue
        elif next_index < len(lines) and cue_lines and cue_lines[-1].strip().isdigit():
            del cue_lines[-1]  # the number of the next cue
        assert timing is not None
        yield _seconds(*timing.groups()[:4]), _seconds(*timing.groups()[4:]), cue_lines


def _seconds(hours: str | None, minutes: str, seconds: str, fraction: str | None) -> float:
    return int(hours or 0) * 3600 + int(minutes) * 60 + float(f"{seconds}.{fraction or 0}")


def _plain_words(line: str) -> str:
    return html.unescape(_TAG.sub("", _VOICE.sub(r"\1: ", line))).strip()
