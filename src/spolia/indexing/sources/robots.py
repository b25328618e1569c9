"""What a site asks of programs that read it: `robots.txt` (RFC 9309)."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import quote, unquote, urlsplit

from spolia.egress.retry import pause
from spolia.types import Value, kept

LARGEST_BYTES = 512_000
LONGEST_DELAY_S = 30.0


@dataclass(frozen=True)
class Robots(Value):
    """The rules of a site for one program.

    The longest rule that fits a path counts, and of two that are equally long the one that allows; `*` stands for
    anything, `$` for the end.

    Args:
        text: the file; what has no file allows everything.
        agent: name of the program.

    >>> robots = Robots("User-agent: *\\nDisallow: /private\\nAllow: /private/open\\nCrawl-delay: 2")
    >>> robots.allows("https://example.org/private/a"), robots.allows("https://example.org/private/open/a")
    (False, True)
    >>> robots.delay_s
    2.0
    """

    text: str = ""
    agent: str = "spolia"

    def allows(self, url: str) -> bool:
        """Whether an address may be read."""
        parts = urlsplit(url)
        path = _plain(parts.path or "/") + (f"?{_plain(parts.query)}" if parts.query else "")
        fitting = [(len(rule), allows) for rule, allows in self._rules if _fits(rule, path)]
        return max(fitting, default=(0, True))[1]

    @kept
    def delay_s(self) -> float:
        """Seconds between two requests, where the site says so; not more than 30."""
        for name, value in self._lines:
            if name == "crawl-delay":
                try:
                    return min(max(float(value), 0.0), LONGEST_DELAY_S)
                except ValueError:
                    continue
        return 0.0

    @kept
    def sitemaps(self) -> tuple[str, ...]:
        """Addresses of its sitemaps."""
        return tuple(value for name, value in _lines(self.text) if name == "sitemap")

    @kept
    def _rules(self) -> list[tuple[str, bool]]:
        said = (line for line in self._lines if line[0] in ("allow", "disallow") and line[1])
        return [(_plain(path), name == "allow") for name, path in said]

    @kept
    def _lines(self) -> list[tuple[str, str]]:
        """The lines for this program: those under its name, else those for all."""
        own, everybody, agents, in_head = [], [], set[str](), False
        named = False
        for name, value in _lines(self.text):
            if name == "user-agent":
                agents = agents if in_head else set()
                agents.add(value.lower().split("/")[0].strip())
                in_head = True
                named = named or self.agent in agents
                continue
            in_head = False
            if self.agent in agents:
                own.append((name, value))
            if "*" in agents:
                everybody.append((name, value))
        return own if named else everybody


def _lines(text: str) -> Iterator[tuple[str, str]]:
    for line in text.lstrip("\ufeff").splitlines():
        name, colon, value = line.partition("#")[0].partition(":")
        if colon:
            yield name.strip().lower(), value.strip()


def _plain(path: str) -> str:
    """A path in one of the ways in which it can be written."""
    return quote(unquote(path), safe="/*$?=&%:@!,;~'()+")


def _fits(rule: str, path: str) -> bool:
    first, *pieces = rule.removesuffix("$").split("*")
    if not path.startswith(first):
        return False
    at = len(first)
    for piece in pieces[:-1] if rule.endswith("$") else pieces:
        if (found := path.find(piece, at)) < 0:
            return False
        at = found + len(piece)
    if not rule.endswith("$"):
        return True
    return path.endswith(pieces[-1]) and len(path) - len(pieces[-1]) >= at if pieces else len(path) == at


class Turns:
    """For threads that ask several hosts."""

    def __init__(self) -> None:
        self._next: dict[str, float] = {}
        self._lock = threading.Lock()

    def wait(self, host: str, delay_s: float) -> None:
        """Wait for a turn; the next one comes so many seconds after it."""
        with self._lock:
            now = time.monotonic()
            at = max(now, self._next.get(host, now))
            self._next[host] = at + delay_s
        if at > now:
            pause(at - now)
