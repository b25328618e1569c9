"""Calendars (iCalendar, RFC 5545): the events, tasks and journal entries with their fields."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from spolia.errors import DocumentError
from spolia.indexing.readers.layout import BLANK_LINE, LINE, Layout
from spolia.indexing.readers.reader import Blob, Reading
from spolia.indexing.readers.text import read_source_text
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
    r"""Reader of calendars. Each event, task and journal entry becomes a paragraph with a line for each field.

    >>> text = b"BEGIN:VCALENDAR\nBEGIN:VEVENT\nSUMMARY:Tea\nDTSTART:20260105T090000Z\nEND:VEVENT\nEND:VCALENDAR\n"
    >>> CalendarReader().read(Blob("a.ics", text)).document.text
    'Summary: Tea\nStart: 2026-01-05 09:00 UTC'
    """

    name = "calendar"
    version = 1
    media_type = "text/calendar"
    suffixes = (".ics", ".ical")

    def read(self, blob: Blob, /) -> Reading:
        source = read_source_text(blob)
        if "BEGIN:VCALENDAR" not in source.text.upper():
            raise DocumentError(
                f"{blob.uri} is not a calendar: it has no line BEGIN:VCALENDAR. Give it the suffix of its format."
            )
        layout = Layout()
        write_events(layout, source.text)
        return layout.build_reading(self, blob, encoding=source.encoding, warnings=source.warnings)


def write_events(layout: Layout, calendar: str) -> None:
    """Write the events of a calendar."""
    for lines in _split_components(calendar):
        layout.attempt("event", partial(_write_component, layout, lines), lambda lines=lines: "\n".join(lines))  # type: ignore[misc]


def _split_components(calendar: str) -> Iterator[list[str]]:
    """Yield the lines of the calendar itself and of each component in it. Lines that the file folds are joined."""
    unfolded = re.sub(r"\r?\n[ \t]", "", calendar)
    open_components: list[tuple[str, list[str]]] = []
    for line in unfolded.splitlines():
        keyword, _, value = line.strip().upper().partition(":")
        if keyword == "BEGIN":
            open_components.append((value, []))
        elif keyword == "END" and open_components:
            name, lines = open_components.pop()
            if name in _COMPONENTS:
                yield lines
        elif open_components:
            open_components[-1][1].append(line)
    yield from (lines for name, lines in open_components if name in _COMPONENTS)  # the end of the file is missing


def _write_component(layout: Layout, lines: list[str]) -> None:
    layout.gap(BLANK_LINE)
    entries = [
        (label, _format_value(name, line["options"], line["value"]))
        for line in map(_LINE.fullmatch, lines)
        if line
        for name in [line["name"].upper()]
        if (label := _FIELDS.get(name))
    ]
    order = [*_FIELDS.values()]
    for label, value in sorted(entries, key=lambda entry: order.index(entry[0])):
        layout.gap(LINE)
        layout.write(f"{label}: {value}")
    layout.gap(BLANK_LINE)


def _format_value(name: str, options: str, value: str) -> str:
    """Format a value for people."""
    value = _ESCAPE.sub(lambda escape: "\n" if escape[1] in "nN" else escape[1], value)
    if name in ("ORGANIZER", "ATTENDEE"):
        common_name, address = _NAME.search(options), re.sub("^mailto:", "", value, flags=re.IGNORECASE)
        label = (common_name[1] or common_name[2] or "") if common_name else ""
        return f"{label} <{address}>" if label and label != address else address
    if time := _TIME.fullmatch(value.strip()):
        zone = _ZONE.search(options)
        day = f"{time[1]}-{time[2]}-{time[3]}"
        return f"{day} {time[4]}:{time[5]}{' UTC' if time[7] else f' {zone[1]}' if zone else ''}" if time[4] else day
    return value
