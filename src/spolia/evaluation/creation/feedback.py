"""What users say of answers: a queue on disk, and drafts of questions made of it, which people review."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from threading import Lock
from typing import Literal, TypeAlias

from spolia.checksums import check, sign
from spolia.evaluation.creation.draft import QuestionDraft
from spolia.evaluation.creation.filters import place_of
from spolia.private_files import private
from spolia.types import Node, Quote, Value

Thumb: TypeAlias = Literal["up", "down"]
TYPE = "asked"
"""Of questions that users asked."""
_WHOLE = re.compile(rb'"digest": "[^"]{16}')
_MARK = re.compile(r"\s*\[\d+(?:, ?\d+)*\]")


@dataclass(frozen=True)
class Feedback(Value):
    """What a user says of the answer of a run.

    Args:
        run: its id.
        by: the name of the user's key.
        question: as the user asked it.
        answer: the text that the user got; `abstained` if it says that nothing answers the question.
        cited: the nodes behind it.
        found: the best nodes of its searches.
        thumb: whether it was good.
        reason: why, in the user's words.
        corrected: the right answer, in the user's words.
    """

    run: str
    by: str
    question: str
    answer: str
    abstained: bool
    cited: tuple[str, ...]
    found: tuple[str, ...]
    thumb: Thumb
    reason: str = ""
    corrected: str = ""


class FeedbackQueue:
    """Feedback in a file of JSON lines; the last line of a run holds. One that is there already is not added again.

    Args:
        redact: changes the words of users before they are written.
    """

    def __init__(self, file: Path, redact: Callable[[str], str] = str) -> None:
        self.file, self.redact, self._lock = file, redact, Lock()
        self._known = self.read()

    def read(self) -> dict[str, Feedback]:
        """The feedback of each run. Lines that were changed, or that a full disk has cut short, are left out."""
        return {one.run: one for _, one in self._lines() if one is not None}

    def damage(self) -> str:
        """What is wrong with the file, in words; a line that was cut short is no damage."""
        changed = [line for line, one in self._lines() if one is None and (_WHOLE.search(line) or line[-1:] == b"}")]
        words = (
            f"{self.file} is damaged: {len(changed)} lines changed since they were written. Restore it from a backup."
        )
        return words if changed else ""

    def _lines(self) -> Iterator[tuple[bytes, Feedback | None]]:
        for line in filter(None, self.file.read_bytes().split(b"\n") if self.file.exists() else ()):
            try:
                row = check(json.loads(line))
                yield line, Feedback(**row | {name: tuple(row[name]) for name in ("cited", "found")})
            except (ValueError, TypeError, KeyError, RecursionError):
                yield line, None

    def add(self, one: Feedback) -> None:
        """Add feedback; it is on disk afterwards."""
        question, answer, reason, corrected = map(self.redact, (one.question, one.answer, one.reason, one.corrected))
        one = replace(one, question=question, answer=answer, reason=reason, corrected=corrected)
        with self._lock:
            if self._known.get(one.run) == one:
                return
            with open(self.file, "ab", opener=private) as file:  # a line of its own, whatever was cut short before it
                file.write(b"\n" + json.dumps(sign(asdict(one)), ensure_ascii=False).encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())
            self._known[one.run] = one


def drafts_of(feedback: Iterable[Feedback], nodes: Mapping[str, Node]) -> Iterator[QuestionDraft]:
    """A question of each feedback, with what the user says is right; dropped if nothing is known to be.

    Args:
        nodes: those that may be quoted, by id.
    """
    for one in feedback:
        seen = tuple(nodes[id] for id in dict.fromkeys((*one.cited, *one.found)) if id in nodes)
        answer = one.corrected or ("" if one.thumb == "down" else _MARK.sub("", one.answer))
        draft = QuestionDraft(TYPE, seen, question=one.question, answers=(answer,) if answer else ())
        if one.thumb == "up" and one.abstained and not one.corrected:
            yield draft.but(type="unanswerable", answers=())
            continue
        quotes = tuple(_quotes(one, answer, seen))
        why = (
            "The question is not kept; send it with the feedback, or serve with --keep-values" if not one.question
            else "No answer is known to be right" if not answer
            else "No passage is known to answer it, that may be read" if not quotes
            else ""
        )  # fmt: skip
        passages = {quote.document for quote in quotes}
        draft = draft.but(quotes=quotes, passages=tuple(node for node in seen if node.document in passages) or seen)
        yield draft.but(dropped_by="Feedback", reason=why) if why else draft


def _quotes(one: Feedback, answer: str, seen: Iterable[Node]) -> Iterator[Quote]:
    """The words of a corrected answer where a passage has them, else the passages that were cited."""
    placed = [(node, place) for node in seen if one.corrected and (place := place_of(answer, node.text))]
    if placed:
        node, (start, end) = placed[0]
        yield Quote(node.document, _start(node) + start, node.text[start:end])
        return
    for node in seen:
        if node.id in one.cited:
            yield Quote(node.document, _start(node), node.text)


def _start(node: Node) -> int:
    return node.span.start if node.span is not None else 0
