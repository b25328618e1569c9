"""Pages of an HTTP API: how they are asked for, and how one leads to the next."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urljoin

from spolia.egress.fetching import Fetched, fetch
from spolia.egress.patience import patiently
from spolia.errors import EgressError, EgressFailed, SourceError, SourceUnavailable
from spolia.indexing.sources.json_path import at
from spolia.indexing.sources.pages import host_of, normal
from spolia.indexing.sources.secrets import with_secrets, without_secrets
from spolia.surrounding import check_cancelled

if TYPE_CHECKING:
    from spolia.indexing.sources.api import APIItems

CURSOR, PAGE = "{cursor}", "{page}"
_NEXT = re.compile(r"<([^<>]*)>\s*;[^<>]*?\brel\s*=\s*\"?next\b", re.IGNORECASE)
_STAYS = "What was published stays."


class Pages:
    """The lists of items, one after the other.

    Args:
        source: which API.
        before: the cursor that was remembered; empty for none.

    Raises:
        SourceError: an answer is none, or they lead nowhere or to another host.
        SourceUnavailable: the server is not there, or overloaded.
    """

    def __init__(self, source: APIItems, before: str) -> None:
        self.source, self.before = source, before
        self.headers = {"Accept": "application/json", "User-Agent": "spolia"}
        self.headers |= {name: with_secrets(value) for name, value in source.headers}

    def __iter__(self) -> Iterator[list[Any]]:
        source, seen = self.source, set[str]()
        page, url = "" if source.next else "1", self._address("" if source.next else "1")
        while url:
            if url in seen:
                raise SourceError(f"{self._who}: its pages lead in a circle, to {url!r} again. {_STAYS}")
            if len(seen) >= source.most_pages:
                raise SourceError(
                    f"{self._who}: it has more than {source.most_pages} pages. Write a larger most_pages. {_STAYS}"
                )
            seen.add(url)
            check_cancelled()
            answer, found = self._asked(url)
            items = at(answer, source.items)
            if not isinstance(items, list):
                raise SourceError(
                    f"{self._who}: at {source.items or 'its top'!r} of page {len(seen)} stands "
                    f"{type(items).__name__}, no list. Write items: PATH. {_STAYS}"
                )
            yield items
            page, url = self._following(answer, found, items, page)

    def _address(self, page: str) -> str:
        with_cursor = self.source.url.replace(CURSOR, quote(self.before or self.source.since, safe=""))
        return with_cursor.replace(PAGE, quote(page, safe=""))

    def _following(self, answer: Any, found: Fetched, items: list[Any], page: str) -> tuple[str, str]:
        """Token or number of the next page, and its address; empty for none."""
        source = self.source
        if source.next:
            said = at(answer, source.next)
            if said is None or said is False or said == "":
                return "", ""
            if PAGE in source.url:
                return str(said), self._address(str(said))
            return "", self._within(str(said), found)
        if PAGE in source.url:
            following = str(int(page) + 1)
            return following, self._address(following) if items else ""
        link = _NEXT.search(found.header("link"))
        return "", self._within(link[1], found) if link else ""

    def _within(self, link: str, found: Fetched) -> str:
        """A link to the next page, which is on the same host: the keys are for that one."""
        url = urljoin(found.url, link)
        if not normal(url) or host_of(url) != host_of(found.url):
            raise SourceError(f"{self._who}: its next page is on another host, {url!r:.200}. {_STAYS}")
        return url

    def _asked(self, url: str) -> tuple[Any, Fetched]:
        source = self.source
        ask = partial(
            fetch,
            url,
            allow=source.allow,
            headers=self.headers,
            largest_bytes=source.largest_bytes,
            timeout_s=source.timeout_s,
            deadline_s=source.deadline_s,
        )
        try:
            found = patiently(ask, retries=source.retries)
        except EgressError as error:
            kind = SourceUnavailable if isinstance(error, EgressFailed) else SourceError
            said = without_secrets(str(error), *(value for _, value in source.headers))
            raise kind(f"{self._who}: {said} {_STAYS}") from error
        try:
            return json.loads(found.data), found
        except (ValueError, RecursionError) as error:
            raise SourceError(
                f"{self._who}: its answer is no JSON ({error}); it begins with {found.data[:60]!r}. {_STAYS}"
            ) from error

    @property
    def _who(self) -> str:
        return f"The API of {self.source.name!r}"
