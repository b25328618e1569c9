"""Calendars (iCalendar, RFC 5545): the events, tasks and journal entries with their fields."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from spolia.errors import DocumentError
from spolia.indexing.readers.layout import BLANK_LINE, LINE, Layout
from spolia.indexing.readers.reader import Blob, Reading
from spolia.indexing.readers.text import source_text
from spolia.types import Value

_COMPONENTS = ("VCALENDAR", "VEVENT", "VTODO", "VJOURNAL", "VFREEBUSY")
_FIELDS = {
    "SUMMARY": "Summary", "DTSTART": "Start", "DTEND": "End", "DUE": "Due", "DURATION": "Duration", "RRULE": "Repeats",
    "LOCATION": "Location", "ORGANIZER": "Organizer", "ATTENDEE": "Attendee", "STATUS": "Status",
    "CATEGORIES": "Categories", "URL": "URL", "CONTACT": "Contact", "COMMENT": "Comment", "DESCRIPTION": "Description",
}  # fmt: skip
_LINE = re.compile(r"(?P<name>[\w-]+)(?P<options>(?:;[\w-]+=(?:\"[^\"]*\"|[^\":;]*))*):(?P<value>.*)", re.DOTALL)
_NAME = re.compile(r";CN=(?:\"([^\"]*)\"|([^\":;]*))", re.IGNORECASE)
_ZONE = re.compile(r";TZID=\"?([^\":;]*)", re.IGNORECASE)
_TIME = re.compile(r"(\d{4})(\d\d)(\d\d)(?:T(\d\d)(\d\d)(\d\d)(Z?))?")
_ESCAPE = re.compile(r"\\([nN,;\\])")


@dataclass(frozen=True)
class CalendarReader(Value):
    r"""Reads calendars: each event, task and journal entry is a paragraph with a line for each field.

    >>> text = b"BEGIN:VCALENDAR\nBEGIN:VEVENT\nSUMMARY:Tea\nDTSTART:20260105T090000Z\nEND:VEVENT\nEND:VCALENDAR\n"
    >>> CalendarReader().read(Blob("a.ics", text)).document.text
    'Summary: Tea\nStart: 2026-01-05 09:00 UTC'
    """

    name = "calendar"
    version = 1
    media_type = "text/calendar"
    suffixes = (".ics", ".ical")

    def read(self, blob: Blob, /) -> Reading:
        found = source_text(blob)
        if "BEGIN:VCALENDAR" not in found.text.upper():
            raise DocumentError(
                f"{blob.uri} is not a calendar: it has no line BEGIN:VCALENDAR. Give it the suffix of its format."
            )
        layout = Layout()
        write_events(layout, found.text)
        return layout.reading(self, blob, encoding=found.encoding, warnings=found.warnings)


def write_events(layout: Layout, calendar: str) -> None:
    """Write the events of a calendar."""
    for lines in _components(calendar):
        layout.attempt("event", partial(_write, layout, lines), lambda lines=lines: "\n".join(lines))  # type: ignore[misc]


def _components(calendar: str) -> Iterator[list[str]]:
    """The lines of the calendar itself and of each component in it; long ones are folded in the file."""
    unfolded = re.sub(r"\r?\n[ \t]", "", calendar)
    opened: list[tuple[str, list[str]]] = []
    for line in unfolded.splitlines():
        keyword, _, value = line.strip().upper().partition(":")
        if keyword == "BEGIN":
            opened.append((value, []))
        elif keyword == "END" and opened:
            name, lines = opened.pop()
            if name in _COMPONENTS:
                yield lines
        elif opened:
            opened[-1][1].append(line)
    yield from (lines for name, lines in opened if name in _COMPONENTS)  # the end of the file is missing


def _write(layout: Layout, lines: list[str]) -> None:
    layout.gap(BLANK_LINE)
    said = [(label, _value(name, line["options"], line["value"])) for line in map(_LINE.fullmatch, lines) if line
            for name in [line["name"].upper()] if (label := _FIELDS.get(name))]  # fmt: skip
    order = [*_FIELDS.values()]
    for label, value in sorted(said, key=lambda one: order.index(one[0])):
        layout.gap(LINE)
        layout.write(f"{label}: {value}")
    layout.gap(BLANK_LINE)


def _value(name: str, options: str, value: str) -> str:
    """A value as a person reads it."""
    value = _ESCAPE.sub(lambda escape: "\n" if escape[1] in "nN" else escape[1], value)
    if name in ("ORGANIZER", "ATTENDEE"):
        named, address = _NAME.search(options), re.sub("^mailto:", "", value, flags=re.IGNORECASE)
        label = (named[1] or named[2] or "") if named else ""
        return f"{label} <{address}>" if label and label != address else address
    if time := _TIME.fullmatch(value.strip()):
        zone = _ZONE.search(options)
        day = f"{time[1]}-{time[2]}-{time[3]}"
        return f"{day} {time[4]}:{time[5]}{' UTC' if time[7] else f' {zone[1]}' if zone else ''}" if time[4] else day
    return value
