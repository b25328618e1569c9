"""Names of attachments: what a sender wrote, as part of a uri."""

from __future__ import annotations

import re
from mimetypes import guess_extension

_REFUSED = re.compile("[\x00-\x1f\x7f/\\\\\ud800-\udfff]+")
_LONGEST = 200


class Names:
    """Gives each attachment of a mail a name of its own.

    >>> names = Names()
    >>> names.of("../a.pdf", ""), names.of(".._a.pdf", ""), names.of("", "text/plain"), names.of(" ", "message/rfc822")
    ('.._a.pdf', '.._a-2.pdf', 'attachment-3.txt', 'attachment-4.eml')
    """

    def __init__(self) -> None:
        self._count = 0
        self._taken: set[str] = set()

    def of(self, said: str, media_type: str) -> str:
        """What a sender says, without what leads elsewhere; where that is nothing, a number and a suffix."""
        self._count += 1
        name = _REFUSED.sub("_", said).strip()[-_LONGEST:]
        if not name.strip("._ "):
            suffix = ".eml" if media_type.startswith("message/") else guess_extension(media_type) or ""
            name = f"attachment-{self._count}{suffix}"
        if name in self._taken:
            stem, dot, suffix = name.rpartition(".")
            name = f"{stem or name}-{self._count}{dot}{suffix}" if dot else f"{name}-{self._count}"
        self._taken.add(name)
        return name
