"""Data sets, and the part that a question belongs to: always the same one, decided by its id alone."""

import hashlib
import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from spolia.core.deprecation import RenamedAttribute
from spolia.errors import DataError
from spolia.evaluation.data.formats.form import TWIN, Form, detect_form, form_named
from spolia.types import Document, Item, Value, lazy_property

PARTS: Mapping[str, float] = {"tune": 0.4, "select": 0.2, "report": 0.4}
"""The parts and their shares: for tuning, for choosing between tuned flows, for the reported score. Frozen: another
share would move questions from tuning into the report."""


def part_of(id: str) -> str:
    """Return the part of a question, by a hash of its id: always the same, whatever else is in the data set.

    >>> part_of("q1"), part_of("q2"), part_of("q2-unanswerable"), part_of("q3")
    ('report', 'select', 'select', 'tune')
    """
    key = shared_id(id).encode("utf-8", "surrogatepass")
    # A hash and no draw, so that a question keeps its part when others are added.
    number = int.from_bytes(hashlib.blake2b(key, digest_size=8).digest()) / 2**64
    for name, share in PARTS.items():
        if number < share:
            return name
        number -= share
    return name  # rounding can leave the number above the last share


def shared_id(id: str) -> str:
    """Return the id that a question and its twin share, so that a flow tuned on one is not reported on the other."""
    return id.removesuffix(TWIN)


def count_parts(ids: Iterable[str]) -> dict[str, int]:
    """Count the questions in each part; parts without any are left out."""
    counts = dict.fromkeys(PARTS, 0)
    for id in ids:
        counts[part_of(id)] += 1
    return {name: number for name, number in counts.items() if number}


def check_part(name: str) -> str:
    """Return the name of a part; raise DataError if it is not one of `PARTS`."""
    if name not in PARTS:
        raise DataError(f"There is no part {name!r} of a data set. Write one of: {', '.join(PARTS)}.")
    return name


@dataclass(frozen=True)
class DataSet(Value):
    """A corpus and questions. Nothing is read before it is asked for.

    Args:
        path: the folder, or the file of those forms that are one file.
        part: of the questions, `tune`, `select` or `report`; empty for all. See `split`.
        form: how it is written, a name of `spolia.evaluation.data.formats.form`; empty to look.

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
            form_named(self.form)
        if self.part:
            check_part(self.part)

    def split(self, part: str) -> "DataSet":
        """Return the same passages with one part of the questions. A question's part is decided by its id, once and for
        all.

        Args:
            part: `tune` for tuning, `select` for choosing between tuned flows, `report` for the score that you
                publish: 40, 20 and 40 of 100 questions.

        >>> DataSet("musique").split("report")
        DataSet(path='musique', part='report', form='')
        """
        return self.but(part=part)

    @property
    def name(self) -> str:
        """Return the folder's own name, or the file's without its ending."""
        path = Path(self.path).resolve()
        return path.name if path.is_dir() or not path.exists() else path.name.partition(".")[0]

    written = RenamedAttribute("file_form")

    @lazy_property
    def file_form(self) -> Form:
        return form_named(self.form) if self.form else detect_form(Path(self.path))

    @property
    def has_corpus(self) -> bool:
        return bool(self.file_form.corpus(Path(self.path)))

    @property
    def columns(self) -> str:
        """Return which column of a table is read as what, in words; empty if the names are fixed."""
        path = Path(self.path)
        roles = [(name, role) for role, name in self.file_form.columns(path).items()]
        described = roles and [*roles, *((name, "metadata") for name in self.file_form.other_columns(path))]
        return (
            f"Columns of {path.name}: {', '.join(f'{name!r} as {role}' for name, role in described)}."
            if described
            else ""
        )

    def passages(self) -> Iterator[Document]:
        """Yield the passages of the corpus, one at a time; raise DataError for a repeated id."""
        ids = set[str]()
        for place, passage in self.file_form.passages(Path(self.path)):
            _refuse_repeated(place, passage.id, ids)
            yield passage

    def items(self, *, stored: bool = False) -> Iterator[Item]:
        """Yield the questions of the part, one at a time; raise DataError for a gold id that the corpus does not have.

        Args:
            stored: whether they are asked of a store, so that the gold names documents of that: by file name or id.
        """
        ids, passage_ids = set[str](), frozenset[str]() if stored else self._passage_ids
        for place, item in self.file_form.items(Path(self.path)):
            _refuse_repeated(place, item.id, ids)
            gold_ids = (gold if isinstance(gold, str) else gold.document for group in item.gold for gold in group)
            missing = [id for id in gold_ids if id not in passage_ids]
            if missing and self.has_corpus and not stored:
                raise DataError(
                    f"{place}: gold id {missing[0]!r} of question {item.id!r} is not in the corpus of "
                    f"{len(passage_ids)} passages. Correct the id, or add the passage to the corpus."
                )
            if not self.part or part_of(item.id) == self.part:
                yield item

    def sample(self, limit: int | None, seed: int = 0) -> list[Item]:
        """Return all items, or `limit` of them drawn by a seed, in the order of the file."""
        return draw_items(list(self.items()), limit, seed)

    def content_hash(self) -> str:
        """Return a hash of the bytes of the corpus, under which an index over it may be kept."""
        digest = hashlib.blake2b(digest_size=16)
        files = self.file_form.corpus(Path(self.path))
        for path in files:
            try:
                with path.open("rb") as file:
                    # A corpus may be larger than memory.
                    while block := file.read(1 << 20):
                        digest.update(block)
            except OSError as error:
                raise DataError(f"{path} cannot be read: {error.strerror}. Check its permissions.") from error
        if not files:
            next(self.passages(), None)  # says what is missing
        return digest.hexdigest()

    @lazy_property
    def _passage_ids(self) -> frozenset[str]:
        return frozenset(passage.id for passage in self.passages()) if self.has_corpus else frozenset()


def draw_items(items: list[Item], limit: int | None, seed: int = 0) -> list[Item]:
    """Return all items, or `limit` of them drawn by a seed, in their order."""
    if limit is None or limit >= len(items):
        return items
    return [items[index] for index in sorted(random.Random(seed).sample(range(len(items)), limit))]


def _refuse_repeated(place: str, id: str, ids: set[str]) -> None:
    if id in ids:
        raise DataError(f"{place}: id {id!r} is on an earlier line too. Give every row its own id.")
    ids.add(id)
