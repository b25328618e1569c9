"""Feedback of users on answers: a queue on disk, and drafts of questions made of it, which people review."""

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
# A line that has its digest was written to the end; else a full disk cut it short.
_WHOLE = re.compile(rb'"digest": "[^"]{16}')
_MARK = re.compile(r"\s*\[\d+(?:, ?\d+)*\]")


@dataclass(frozen=True)
class Feedback(Value):
    """Feedback of a user on the answer of a run.

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
        """Return the feedback of each run. Lines that were changed, or that a full disk has cut short, are left out."""
        return {entry.run: entry for _, entry in self._lines() if entry is not None}

    def damage(self) -> str:
        """Describe what is wrong with the file; a line that was cut short is no damage."""
        changed_lines = [
            line for line, entry in self._lines() if entry is None and (_WHOLE.search(line) or line[-1:] == b"}")
        ]
        words = (
            f"{self.file} is damaged: {len(changed_lines)} lines changed since they were written. "
            "Restore it from a backup."
        )
        return words if changed_lines else ""

    def _lines(self) -> Iterator[tuple[bytes, Feedback | None]]:
        for line in filter(None, self.file.read_bytes().split(b"\n") if self.file.exists() else ()):
            try:
                row = check(json.loads(line))
                yield line, Feedback(**row | {name: tuple(row[name]) for name in ("cited", "found")})
            # One damaged line does not keep the others from being read; `damage` reports it.
            except (ValueError, TypeError, KeyError, RecursionError):
                yield line, None

    def add(self, entry: Feedback) -> None:
        """Add feedback; it is on disk afterwards."""
        question, answer, reason, corrected = map(
            self.redact, (entry.question, entry.answer, entry.reason, entry.corrected)
        )
        entry = replace(entry, question=question, answer=answer, reason=reason, corrected=corrected)
        with self._lock:
            # A client that retries sends the same feedback again.
            if self._known.get(entry.run) == entry:
                return
            with open(self.file, "ab", opener=private) as file:  # a line of its own, whatever was cut short before it
                file.write(b"\n" + json.dumps(sign(asdict(entry)), ensure_ascii=False).encode() + b"\n")
                file.flush()
                # Feedback that was confirmed to a user must survive a power cut.
                os.fsync(file.fileno())
            self._known[entry.run] = entry


def drafts_of(feedback: Iterable[Feedback], nodes: Mapping[str, Node]) -> Iterator[QuestionDraft]:
    """Yield a question of each feedback, with what the user says is right; dropped if nothing is known to be.

    Args:
        nodes: those that may be quoted, by id.
    """
    for entry in feedback:
        evidence = tuple(nodes[id] for id in dict.fromkeys((*entry.cited, *entry.found)) if id in nodes)
        answer = entry.corrected or ("" if entry.thumb == "down" else _MARK.sub("", entry.answer))
        draft = QuestionDraft(TYPE, evidence, question=entry.question, answers=(answer,) if answer else ())
        if entry.thumb == "up" and entry.abstained and not entry.corrected:
            yield draft.but(type="unanswerable", answers=())
            continue
        quotes = tuple(_quotes(entry, answer, evidence))
        reason = (
            "The question is not kept; send it with the feedback, or serve with --keep-values" if not entry.question
            else "No answer is known to be right" if not answer
            else "No passage is known to answer it, that may be read" if not quotes
            else ""
        )  # fmt: skip
        quoted = {quote.document for quote in quotes}
        draft = draft.but(
            quotes=quotes, passages=tuple(node for node in evidence if node.document in quoted) or evidence
        )
        yield draft.but(dropped_by="Feedback", reason=reason) if reason else draft


def _quotes(entry: Feedback, answer: str, evidence: Iterable[Node]) -> Iterator[Quote]:
    """Yield the words of a corrected answer if a passage has them, else the passages that were cited."""
    places = [(node, place) for node in evidence if entry.corrected and (place := place_of(answer, node.text))]
    if places:
        node, (start, end) = places[0]
        yield Quote(node.document, _start(node) + start, node.text[start:end])
        return
    for node in evidence:
        if node.id in entry.cited:
            yield Quote(node.document, _start(node), node.text)


def _start(node: Node) -> int:
    return node.span.start if node.span is not None else 0
