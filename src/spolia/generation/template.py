"""Prompt files: what is said to a model stands in a text file, never in code.

    === system ===
    Answer from the passages.

    === user ===
    {passages}

    Question: {question}

Lines of the form `=== role ===` begin a message; a file without any is one message of the user. What is put in is never
looked at again, so that braces in a question or a passage stay what they are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from spolia.errors import FlowFileError
from spolia.types import Message

SHIPPED = Path(__file__).parent / "prompts"
_ROLE = re.compile(r"^=== *(system|user|assistant) *===[ \t]*\n", re.MULTILINE)
_NAME = re.compile(r"\w+")


def template(prompt: str, *, needs: tuple[str, ...]) -> str:
    """The text of a prompt file.

    Args:
        prompt: the name of a shipped prompt (`answer`, `brief`), or the path of a file.
        needs: placeholders that it must have.

    Raises:
        FlowFileError: when it cannot be read, or lacks a placeholder.

    >>> template("answer", needs=("passages", "question")).splitlines()[0]
    '=== system ==='
    """
    path = SHIPPED / f"{prompt}.txt" if _NAME.fullmatch(prompt) else Path(prompt)
    try:
        about = path.stat()
        text = _read(path, about.st_mtime_ns, about.st_size)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path, or no UTF-8 in the file
        why = getattr(error, "strerror", None) or ("it is not UTF-8" if isinstance(error, UnicodeError) else str(error))
        shipped = ", ".join(sorted(file.stem for file in SHIPPED.glob("*.txt")))
        raise FlowFileError(
            f"The prompt {prompt!r} could not be read from {str(path)!r}: {why}. Write the name of a shipped prompt "
            f"({shipped}) or the path of a text file."
        ) from error
    missing = [name for name in needs if f"{{{name}}}" not in text]
    if missing:
        raise FlowFileError(
            f"The prompt file {str(path)!r} has no {{{missing[0]}}}. Write {{{missing[0]}}} where it is to stand."
        )
    return text


def filled(text: str, parts: Mapping[str, str]) -> tuple[Message, ...]:
    """The messages of a prompt file with each `{name}` replaced by its part.

    >>> filled("=== system ===\\nBe brief.\\n=== user ===\\n{question} {x}\\n", {"question": "What is {passages}?"})
    (Message(role='system', content='Be brief.'), Message(role='user', content='What is {passages}? {x}'))
    """
    places = re.compile("|".join(re.escape(f"{{{name}}}") for name in parts))
    head, *rest = _ROLE.split(text)
    found = [("user", head), *zip(rest[::2], rest[1::2], strict=True)]
    return tuple(
        Message(role, places.sub(lambda place: parts[place.group()[1:-1]], content.strip()))
        for role, content in found
        if content.strip()
    )


@lru_cache(maxsize=64)
def _read(path: Path, mtime_ns: int, size: int) -> str:
    """A file's text, read again when it has changed."""
    return path.read_text("utf-8-sig")
