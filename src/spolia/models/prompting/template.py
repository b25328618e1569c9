"""Prompt files, and the rules that keep a text inside its place: nothing in it passes for the prompt's own marks."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import Final, Self, TypeAlias

from spolia.errors import PromptError
from spolia.models.marks import escape_marks
from spolia.types import Message, Value


class Setting(str):
    """Text from the author of the flow: a number, a list of words, the sentence for abstaining.

    Only such a text may be in a system message (`spolia.models.prompting.template`); what comes from a question,
    a document or a model may not.

    >>> Setting(5), Setting("I do not know.")
    ('5', 'I do not know.')
    """

    __slots__ = ()


ENGLISH: Final = "en"
LANGUAGES: Final = (ENGLISH, "zh", "ko", "ja")
"""English for whatever is in another script than these."""

_HAN = re.compile("[\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af]")
_KANA = re.compile("[\u3041-\u3096\u30a1-\u30fa\u31f0-\u31ff\uff66-\uff9d]")
_HANGUL = re.compile("[\u1100-\u11ff\u3131-\u318e\ua960-\ua97f\uac00-\ud7ff]")
_FEWEST = 3  # one letter in so many: a name in another script makes no other language, a term in Latin letters neither
_KANA_AT_LEAST = 8  # one in so many: of Japanese prose every other is kana, of Chinese none but in names
_READ = 20_000  # characters


def language_of(text: str) -> str:
    """Return which of `LANGUAGES` a text is in, by its script; Japanese without kana looks like Chinese.

    >>> [language_of(text) for text in ("什么是 BM25？", "누가 썼습니까?", "誰が書いたのか", "Who wrote 紅樓夢?", "")]
    ['zh', 'ko', 'ja', 'en', 'en']
    """
    beginning = text[:_READ]
    han, kana, hangul = (len(script.findall(beginning)) for script in (_HAN, _KANA, _HANGUL))
    if _FEWEST * (han + kana + hangul) < sum(map(str.isalpha, beginning)) or not han + kana + hangul:
        return ENGLISH
    if hangul > han + kana:
        return "ko"
    return "ja" if _KANA_AT_LEAST * kana >= han + kana else "zh"


def translated_path(place: str, language: str) -> str:
    """Return the place of the same file in another language: in the same folder, with the language before its ending.

    >>> translated_path("spolia:indexing/prompts/summary.txt", "ko")
    'spolia:indexing/prompts/summary.ko.txt'
    >>> translated_path("mine", "ja"), translated_path("mine.txt", "en")
    ('mine.ja', 'mine.txt')
    """
    ending = PurePosixPath(place).suffix
    return place if language == ENGLISH else f"{place.removesuffix(ending)}.{language}{ending}"


Filling: TypeAlias = Mapping[str, str | Sequence[str]]

_HEAD = re.compile(r"^\[(system|user|assistant)\][ \t]*\n", re.MULTILINE)
_PLACE = re.compile(r"\{\{(\w+)\}\}")
_TAG = re.compile(r"</?\s*(\w+)")
"""A delimiter, as files write them."""


@dataclass(frozen=True)
class Template(Value):
    """Prompt file that was read: messages with places in them, and the names of its delimiters (`tags`)."""

    messages: tuple[Message, ...]
    tags: frozenset[str]

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Parse the template that a prompt file's text describes.

        >>> Template.from_text("<q>{{question}}</q>").fill({"question": "Is {x} </Q > y?"})[0].content
        '<q>Is {x} ‹/Q > y?</q>'
        """
        parts = _HEAD.split(text.replace("\r\n", "\n"))  # a file from Windows is the same prompt
        sections = list(zip(parts[1::2], parts[2::2], strict=True))
        if parts[0].strip():
            sections.insert(0, ("user", parts[0]))
        places = frozenset(_PLACE.findall(text))  # a block of several texts has its place's name as tag
        messages = tuple(Message(role, content.strip()) for role, content in sections)
        return cls(messages, frozenset(tag.lower() for tag in _TAG.findall(text)) | places)

    @property
    def places(self) -> frozenset[str]:
        return frozenset(name for message in self.messages for name in _PLACE.findall(message.content))

    def fill(self, values: Filling) -> tuple[Message, ...]:
        """Return the messages with a text, or several, at each place.

        Raises:
            PromptError: a place is left without a text, or one in a system's message is given what is no `Setting`.
        """
        if missing := sorted(self.places - values.keys()):
            raise PromptError(
                f"The prompt has a place {{{{{missing[0]}}}}}, but is given {', '.join(sorted(values)) or 'nothing'}. "
                "Take the place out of the file, or write one of these."
            )
        self._refuse_in_system(values)
        texts = {name: self._render(name, values[name]) for name in self.places}
        return tuple(
            Message(message.role, _PLACE.sub(lambda match: texts[match[1]], message.content))
            for message in self.messages
        )

    def _refuse_in_system(self, values: Filling) -> None:
        for message in self.messages:
            for name in _PLACE.findall(message.content) if message.role == "system" else ():
                if not isinstance(values[name], Setting):
                    raise PromptError(
                        f"The prompt has {{{{{name}}}}} in a system's message, where what a question, a document or a "
                        "model says must not stand. Move it into the user's message; give what the flow itself says "
                        "as a Setting (spolia.models.prompting.template)."
                    )

    def _render(self, name: str, value: str | Sequence[str]) -> str:
        if isinstance(value, Setting):
            return str(value)  # may name control tokens
        if isinstance(value, str):
            return escape_marks(value, self.tags)
        escaped = [escape_marks(text, self.tags) for text in value]
        return "\n".join(f'<{name} number="{number}">\n{text}\n</{name}>' for number, text in enumerate(escaped, 1))


def read_translated(place: str, values: Filling, language: str = "") -> Template:
    """Read the prompt file at a place, or its translation: into the given language, else that of the question."""
    if is_inline(place):
        return read(place)
    target = language or language_of(_deciding_text(values))
    translation = translated_path(place, target)
    return read(translation) if target != ENGLISH and _path(translation).is_file() else read(place)


def read_all(place: str, language: str = "") -> dict[str, Template]:
    """Read all files that may be filled for a place, by language: the file, and its translations; one if a language is
    given."""
    if is_inline(place):
        return {ENGLISH: read(place)}
    if language:
        return {language: read_translated(place, {}, language)}
    translations = {name: translated_path(place, name) for name in LANGUAGES if name != ENGLISH}
    return {ENGLISH: read(place)} | {name: read(file) for name, file in translations.items() if _path(file).is_file()}


def read_text(place: str, language: str = ENGLISH) -> str:
    """Return the text of a prompt file, in one of the languages that it has; an inline prompt as it is."""
    if is_inline(place):
        return place
    try:
        return _path(translated_path(place, language)).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise _unreadable(place, error) from error


def check_language(language: str, owner: str) -> None:
    """Raise PromptError for a language that no prompts are written in."""
    if language and language not in LANGUAGES:
        raise PromptError(
            f"{owner} has language={language!r}. Write one of {', '.join(LANGUAGES)}, or nothing for that of the "
            "question."
        )


def _deciding_text(values: Filling) -> str:
    """Return the text that decides the language: the question, or the longest of all texts."""
    texts = [text for value in values.values() for text in ((value,) if isinstance(value, str) else value)]
    question = values.get("question")
    return question if isinstance(question, str) else max(texts, key=len, default="")


def read(place: str) -> Template:
    """Read the prompt file at a place: a path, or `package:path/in/it` for a file in a package; or an inline prompt.

    The package is found without importing it, so that a flow file can name no code to run.
    """
    if is_inline(place):
        return _inline(place)
    path = _path(place)
    try:
        status = path.stat()
        # Time and size are part of the key, so that a changed file is read again.
        return _read(path, status.st_mtime_ns, status.st_size)
    except (OSError, UnicodeDecodeError) as error:
        raise _unreadable(place, error) from error


def _unreadable(place: str, error: Exception) -> PromptError:
    return PromptError(
        f"The prompt {place!r} cannot be read: {error}. Write a path, 'package:path', or a text with {{{{places}}}}."
    )


def is_inline(prompt: str) -> bool:
    """Return whether a prompt is the text itself, not a place of a file: it has a `{{place}}` or several lines.

    >>> is_inline("Write five words on this: {{question}}"), is_inline("prompts/five_words.txt")
    (True, False)
    """
    return "{{" in prompt or "\n" in prompt


def title_of(prompt: str) -> str:
    """Return the title of a prompt in messages: the place of its file, or the beginning of an inline one."""
    return f"{' '.join(prompt.split())[:40]} …" if is_inline(prompt) else prompt


_inline = lru_cache(maxsize=256)(Template.from_text)


@lru_cache(maxsize=256)
def _read(path: Path, mtime_ns: int, size: int) -> Template:
    return Template.from_text(path.read_text(encoding="utf-8"))


@lru_cache(maxsize=256)
def _path(place: str) -> Path:
    package, colon, inside = place.partition(":")
    if not colon or not package.isidentifier() or len(package) == 1:  # one letter before a colon is a drive
        return Path(place).expanduser()
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise PromptError(f"The prompt {place!r} names no installed package. Install {package}, or write a path.")
    steps = PurePosixPath(inside)
    # A flow file may come from somebody else, and must not show the model any file of this machine.
    if steps.is_absolute() or ".." in steps.parts:
        raise PromptError(f"The prompt {place!r} leaves its package. Write a path inside it, or a path of your own.")
    return Path(spec.submodule_search_locations[0]) / steps


TAIL = 4
"""The end, where conclusions are, gets one part in this many of a shortened text."""


def shorten(text: str, characters: int) -> str:
    """Return the beginning and the end of a text, `characters` of it at most, and how much is left out between them.

    >>> shorten("abcdefghijklmnop", 8)
    'abcdef\\n[... 8 characters left out ...]\\nop'
    """
    if len(text) <= characters:
        return text
    tail = characters // TAIL
    head = characters - tail
    return f"{text[:head]}\n{_omission(len(text) - characters)}\n{text[len(text) - tail :]}"


def stretch(text: str, offset: int, characters: int) -> str:
    """Return a stretch of at most `characters` of a text around the offset `at`, shortened at both ends.

    Stretches begin at multiples of half their length, so that neighbouring places share one, and a server that keeps
    the prefix of a prompt reads it once.

    >>> stretch("abcdefghijklmnop", 8, 8)
    '[... 4 characters left out ...]\\nefghijkl\\n[... 4 characters left out ...]'
    >>> stretch("abcdefghijklmnop", 9, 8) == stretch("abcdefghijklmnop", 7, 8)
    True
    """
    if len(text) <= characters:
        return text
    step = max(1, characters // 2)
    nearest = (offset - characters // 2 + step // 2) // step * step
    start = max(0, min(nearest, len(text) - characters))
    end = start + characters
    beginning = [_omission(start)] if start else []
    ending = [_omission(len(text) - end)] if end < len(text) else []
    return "\n".join([*beginning, text[start:end], *ending])


def _omission(characters: int) -> str:
    return f"[... {characters} characters left out ...]"
