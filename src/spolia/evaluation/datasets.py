"""Data sets: passages and questions with gold, read lazily, in whatever form they are written."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from spolia.errors import DataError
from spolia.evaluation.formats.form import Form
from spolia.evaluation.formats.known import form_called, form_of
from spolia.evaluation.splits import checked_part, part_of
from spolia.types import Document, Item, Value, kept


@dataclass(frozen=True)
class DataSet(Value):
    """A corpus and questions. Nothing is read before it is asked for.

    Args:
        path: the folder, or the file of those forms that are one file.
        part: of the questions, `tune`, `select` or `report`; empty for all. See `split`.
        form: how it is written, a name of `spolia.evaluation.formats.known`; empty to look.

    Raises:
        DataError: on reading, when a file is missing, cut short, or does not follow the schema; names the line.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = (folder / "corpus.jsonl").write_text('{"id": "p1", "title": "Tides", "text": "The moon pulls."}')
    >>> _ = (folder / "questions.jsonl").write_text('{"id": "q1", "question": "What pulls?", "gold_ids": ["p1"]}')
    >>> [item.gold for item in DataSet(str(folder)).items()]
    [(('p1',),)]
    """

    path: str
    part: str = ""
    form: str = ""

    def __post_init__(self) -> None:
        if self.form:
            form_called(self.form)
        if self.part:
            checked_part(self.part)

    def split(self, part: str) -> DataSet:
        """The same passages with one part of the questions. A question's part is decided by its id, once and for all.

        Args:
            part: `tune` for what flows are tuned on, `select` for what decides between the tuned ones, `report` for
                what is told to others: 40, 20 and 40 of 100 questions.

        >>> DataSet("musique").split("report")
        DataSet(path='musique', part='report', form='')
        """
        return self.but(part=part)

    @property
    def name(self) -> str:
        """The folder's own name, or the file's without its ending."""
        path = Path(self.path).resolve()
        return path.name if path.is_dir() or not path.exists() else path.name.partition(".")[0]

    @kept
    def written(self) -> Form:
        """How it is written."""
        return form_called(self.form) if self.form else form_of(Path(self.path))

    @property
    def has_corpus(self) -> bool:
        return bool(self.written.corpus(Path(self.path)))

    def passages(self) -> Iterator[Document]:
        """The passages of the corpus, one at a time; an id that comes twice is refused."""
        seen = set[str]()
        for place, found in self.written.passages(Path(self.path)):
            _refuse_twice(place, found.id, seen)
            yield found

    def items(self, *, stored: bool = False) -> Iterator[Item]:
        """The questions of the part, one at a time; a gold id that the corpus does not have is refused by name.

        Args:
            stored: whether they are asked of a store, so that the gold names documents of that: by file name or id.
        """
        seen, known = set[str](), frozenset[str]() if stored else self._passage_ids
        for place, item in self.written.items(Path(self.path)):
            _refuse_twice(place, item.id, seen)
            named = (one if isinstance(one, str) else one.document for group in item.gold for one in group)
            missing = [id for id in named if id not in known]
            if missing and self.has_corpus and not stored:
                raise DataError(
                    f"{place}: gold id {missing[0]!r} of question {item.id!r} is not in the corpus of {len(known)} "
                    "passages. Correct the id, or add the passage to the corpus."
                )
            if not self.part or part_of(item.id) == self.part:
                yield item

    def sample(self, limit: int | None, seed: int = 0) -> list[Item]:
        """All items, or `limit` of them drawn by a seed, in the order of the file."""
        return drawn(list(self.items()), limit, seed)

    def content_hash(self) -> str:
        """A hash of the bytes of the corpus: what an index over it may be kept under."""
        digest = hashlib.blake2b(digest_size=16)
        files = self.written.corpus(Path(self.path))
        for path in files:
            try:
                with path.open("rb") as file:
                    while block := file.read(1 << 20):
                        digest.update(block)
            except OSError as error:
                raise DataError(f"{path} cannot be read: {error.strerror}. Check its permissions.") from error
        if not files:
            next(self.passages(), None)  # says what is missing
        return digest.hexdigest()

    @kept
    def _passage_ids(self) -> frozenset[str]:
        return frozenset(passage.id for passage in self.passages()) if self.has_corpus else frozenset()


def drawn(items: list[Item], limit: int | None, seed: int = 0) -> list[Item]:
    """All items, or `limit` of them drawn by a seed, in their order."""
    if limit is None or limit >= len(items):
        return items
    return [items[index] for index in sorted(random.Random(seed).sample(range(len(items)), limit))]


def _refuse_twice(place: str, id: str, seen: set[str]) -> None:
    if id in seen:
        raise DataError(f"{place}: id {id!r} stands on an earlier line too. Give every row its own id.")
    seen.add(id)
