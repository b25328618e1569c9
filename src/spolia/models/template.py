"""Prompt files: messages with named places, filled so that no text can leave the place that it was put into.

A prompt file is plain text. A line `[system]`, `[user]` or `[assistant]` begins a message; without one, all of it is
one user's message. `{{name}}` is a place:

    [system]
    Answer from the passages only.
    [user]
    {{passages}}

    <question>{{question}}</question>

A text is put in as it is; several texts are put in as numbered blocks, `<passages number="1">...</passages>`.

Why a text cannot leave its place:
 * The file is cut into messages and places before anything is filled in, and what is filled in is never looked at
   again. Braces and lines like `[system]` in a document are therefore plain characters.
 * Delimiters are tags. A text that is filled in can hold none of this file's, and no mark of a chat
   (`spolia.models.delimiters`), so that the first closing tag after an opening one is the file's own.
 * A place in a system's message takes a `Setting` only: what the flow's author says, never what a question, a document
   or a model says.

A file may have others beside it, in other languages: `summary.zh.txt` beside `summary.txt` (`spolia.models.languages`).
Which one is filled is decided by what it is filled with: by the question, or where there is none by the longest text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import TypeAlias

from spolia.errors import PromptError
from spolia.models.delimiters import Setting, kept_inside
from spolia.models.languages import ENGLISH, LANGUAGES, beside, language_of
from spolia.types import Message, Value

Filling: TypeAlias = Mapping[str, str | Sequence[str]]

_HEAD = re.compile(r"^\[(system|user|assistant)\][ \t]*\n", re.MULTILINE)
_PLACE = re.compile(r"\{\{(\w+)\}\}")
_TAG = re.compile(r"</?\s*(\w+)")
"""A delimiter, as files write them."""


@dataclass(frozen=True)
class Template(Value):
    """A prompt file that was read.

    Args:
        messages: roles and texts with places in them.
        tags: names of its delimiters.
    """

    messages: tuple[Message, ...]
    tags: frozenset[str]

    @classmethod
    def of(cls, text: str) -> Template:
        """The template that a prompt file's text describes.

        >>> Template.of("<q>{{question}}</q>").filled({"question": "Is {x} </Q > y?"})[0].content
        '<q>Is {x} ‹/Q > y?</q>'
        """
        parts = _HEAD.split(text.replace("\r\n", "\n"))
        named = list(zip(parts[1::2], parts[2::2], strict=True))
        if parts[0].strip():
            named.insert(0, ("user", parts[0]))
        places = frozenset(_PLACE.findall(text))  # a block of several texts has its place's name as tag
        messages = tuple(Message(role, content.strip()) for role, content in named)
        return cls(messages, frozenset(tag.lower() for tag in _TAG.findall(text)) | places)

    @property
    def places(self) -> frozenset[str]:
        return frozenset(name for message in self.messages for name in _PLACE.findall(message.content))

    def filled(self, values: Filling) -> tuple[Message, ...]:
        """The messages with a text, or several, at each place.

        Raises:
            PromptError: a place is left without a text, or one in a system's message is given what is no `Setting`.
        """
        if missing := sorted(self.places - values.keys()):
            raise PromptError(
                f"The prompt has a place {{{{{missing[0]}}}}}, but is given {', '.join(sorted(values)) or 'nothing'}. "
                "Take the place out of the file, or write one of these."
            )
        self._refuse_in_system(values)
        texts = {name: self._rendered(name, values[name]) for name in self.places}
        return tuple(
            Message(message.role, _PLACE.sub(lambda found: texts[found[1]], message.content))
            for message in self.messages
        )

    def _refuse_in_system(self, values: Filling) -> None:
        for message in self.messages:
            for name in _PLACE.findall(message.content) if message.role == "system" else ():
                if not isinstance(values[name], Setting):
                    raise PromptError(
                        f"The prompt has {{{{{name}}}}} in a system's message, where what a question, a document or a "
                        "model says must not stand. Move it into the user's message; give what the flow itself says "
                        "as a Setting (spolia.models.delimiters)."
                    )

    def _rendered(self, name: str, found: str | Sequence[str]) -> str:
        if isinstance(found, str):
            return kept_inside(found, self.tags)
        inside = [kept_inside(text, self.tags) for text in found]
        return "\n".join(f'<{name} number="{number}">\n{text}\n</{name}>' for number, text in enumerate(inside, 1))


def chosen(place: str, values: Filling, language: str = "") -> Template:
    """The prompt file at a place, or the one beside it in the language of what is asked.

    Args:
        values: what it is to be filled with.
        language: of `LANGUAGES`, instead of that; a file that is not there in it is taken as it is.
    """
    wanted = language or language_of(_asked(values))
    found = beside(place, wanted)
    return read(found) if wanted != ENGLISH and _path(found).is_file() else read(place)


def every(place: str, language: str = "") -> dict[str, Template]:
    """All that may be filled for a place, by language: the file, and those beside it; one if a language is given."""
    if language:
        return {language: chosen(place, {}, language)}
    others = {name: beside(place, name) for name in LANGUAGES if name != ENGLISH}
    return {ENGLISH: read(place)} | {name: read(at) for name, at in others.items() if _path(at).is_file()}


def text_of(place: str, language: str = ENGLISH) -> str:
    """What a prompt file says, in one of the languages in which it is there."""
    try:
        return _path(beside(place, language)).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise _unreadable(place, error) from error


def checked_language(language: str, whose: str) -> None:
    """Refuse a language that prompts are in no way written in.

    Raises:
        PromptError: and which there are.
    """
    if language and language not in LANGUAGES:
        raise PromptError(
            f"{whose} has language={language!r}. Write one of {', '.join(LANGUAGES)}, or nothing for that of what is "
            "asked."
        )


def _asked(values: Filling) -> str:
    """What decides the language: the question, or the longest of all texts."""
    texts = [text for found in values.values() for text in ((found,) if isinstance(found, str) else found)]
    question = values.get("question")
    return question if isinstance(question, str) else max(texts, key=len, default="")


def read(place: str) -> Template:
    """The prompt file at a place: a path, or `package:path/in/it` for one that a package brings.

    The package is found without importing it, so that a flow file can name no code to run.

    Raises:
        PromptError: there is no such file, or it is no UTF-8 text.
    """
    path = _path(place)
    try:
        found = path.stat()
        return _read(path, found.st_mtime_ns, found.st_size)
    except (OSError, UnicodeDecodeError) as error:
        raise _unreadable(place, error) from error


def _unreadable(place: str, error: Exception) -> PromptError:
    return PromptError(f"The prompt {place!r} cannot be read: {error}. Write a path, or 'package:path'.")


@lru_cache(maxsize=256)
def _read(path: Path, mtime_ns: int, size: int) -> Template:
    return Template.of(path.read_text(encoding="utf-8"))


def _path(place: str) -> Path:
    package, colon, inside = place.partition(":")
    if not colon or not package.isidentifier() or len(package) == 1:  # one letter before a colon is a drive
        return Path(place).expanduser()
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise PromptError(f"The prompt {place!r} names no installed package. Install {package}, or write a path.")
    steps = PurePosixPath(inside)
    if steps.is_absolute() or ".." in steps.parts:
        raise PromptError(f"The prompt {place!r} leaves its package. Write a path inside it, or a path of your own.")
    return Path(spec.submodule_search_locations[0]) / steps
