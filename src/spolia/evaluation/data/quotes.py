"""Conversion of gold passages to gold quotes, which survive every re-chunking."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from unicodedata import category

from spolia.core.deprecation import renamed_arguments
from spolia.errors import DataError
from spolia.stores.lexical.analysis import UNSPACED
from spolia.types import Document, Gold, Item, Quote, Value

SEPARATOR = "\n\n"
_UNSPACED = re.compile(f"[{UNSPACED}]")


@dataclass(frozen=True)
class PassageLocations(Value):
    """Locations of passages, at one or several places of `documents`, which are searched instead of the passages."""

    documents: tuple[Document, ...]
    quotes: Mapping[str, tuple[Quote, ...]]

    def item(self, item: Item) -> Item:
        """Return a question whose gold passages are quotes; any place of a passage will do. Raise DataError if it has
        none."""
        gold = tuple(
            tuple(dict.fromkeys(q for member in group for q in self._quotes_of(item, member))) for group in item.gold
        )
        old = dict(item.grades)
        grades = {str(q): old[str(member)] for group in item.gold for member in group if str(member) in old
                  for q in self._quotes_of(item, member)}  # fmt: skip
        meta = tuple(pair for pair in item.meta if pair[0] != "grades")
        hops = tuple(hop.but(gold_id=self._document(hop.gold_id)) for hop in item.decomposition)
        return item.but(gold=gold, grades=tuple(grades.items()), meta=meta, decomposition=hops)

    def _document(self, passage: str) -> str:
        quotes = self.quotes.get(passage, ())
        return quotes[0].document if quotes else ""

    def _quotes_of(self, item: Item, gold: Gold) -> tuple[Quote, ...]:
        if isinstance(gold, Quote):
            places = self.quotes.get(gold.document, ())
            return tuple(Quote(place.document, place.start + gold.start, gold.text) for place in places) or (gold,)
        if not (quotes := self.quotes.get(gold, ())):
            raise DataError(
                f"Gold {gold!r} of question {item.id!r} is in none of {len(self.documents)} documents, word for "
                "word. Give the documents that the passages were cut from, as they were."
            )
        return quotes


def locate_passages(passages: Iterable[Document], documents: Iterable[Document]) -> PassageLocations:
    """Find passages in the documents that they were cut from, word for word, blanks around them aside.

    >>> documents = [Document("d", "Tides. The moon pulls. So it is.")]
    >>> found = locate_passages([Document("p1", "The moon pulls.")], documents)
    >>> [str(quote) for quote in found.quotes["p1"]]
    ['d[7:22]']
    """
    sources = tuple(documents)
    return PassageLocations(
        sources,
        {passage.id: tuple(q for d in sources for q in _find_all(d, passage.text.strip())) for passage in passages},
    )


@renamed_arguments(by="field")
def join_passages(passages: Iterable[Document], field: str = "title") -> PassageLocations:
    """Put passages that follow one another, of one title or with one value of a metadata field, into documents.

    >>> passages = [Document("p1", "One.", title="A"), Document("p2", "Two.", title="A"), Document("p3", "Three.")]
    >>> found = join_passages(passages)
    >>> [(one.id, one.text) for one in found.documents], str(found.quotes["p2"][0])
    ([('A', 'One.\\n\\nTwo.'), ('p3', 'Three.')], 'A[6:10]')
    """
    passages = list(passages)
    fields = {"title"} if any(passage.title for passage in passages) else set[str]()
    fields.update(name for passage in passages for name, _ in passage.meta)
    if field not in fields:
        listed = ", ".join(sorted(fields)) or "nothing, since they have neither titles nor metadata"
        raise DataError(f"No passage has a {field!r} to be joined by. Join by: {listed}.")
    documents: list[Document] = []
    quotes: dict[str, tuple[Quote, ...]] = {}
    used_ids = set[str]()
    for key, group in groupby(
        passages, lambda passage: str(passage.title if field == "title" else dict(passage.meta).get(field) or "")
    ):
        for members in [list(group)] if key else ([passage] for passage in group):
            name = key or members[0].id
            id = name if name not in used_ids else members[0].id  # the same title again, after others: another document
            used_ids.add(id)
            start, text = 0, SEPARATOR.join(passage.text for passage in members)
            for passage in members:
                quotes[passage.id] = (Quote(id, start, passage.text),)
                start += len(passage.text) + len(SEPARATOR)
            documents.append(Document(id, text, title=members[0].title))
    return PassageLocations(tuple(documents), quotes)


joined = join_passages  # its former name, which goes with the next minor version


def with_quotes(items: Iterable[Item], passages: Mapping[str, str]) -> Iterator[Item]:
    """Yield questions with gold in passages: supporting sentences, else answers, else a whole passage."""
    for item in items:
        sentences_of: dict[str, list[str]] = {}
        for fact in json.loads(str(dict(item.meta).get("supporting_sentences") or "[]")):
            sentences_of.setdefault(fact["gold_id"], []).append(fact["sentence"])
        groups = [group for old in item.gold for group in _quote_group(old, sentences_of, item.answers, passages)]
        yield item.but(gold=tuple(dict.fromkeys(groups)), grades=())


def _quote_group(
    group: Sequence[Gold],
    sentences_of: Mapping[str, Sequence[str]],
    answers: Sequence[str],
    passages: Mapping[str, str],
) -> Iterator[tuple[Gold, ...]]:
    """Yield the quotes of a group: all supporting sentences of a passage are needed; of answers, and of passages, any
    will do."""
    if len(group) == 1 and isinstance(group[0], str) and group[0] in sentences_of:
        id = group[0]
        for sentence in sentences_of[id]:
            yield tuple(_find_all(Document(id, passages[id]), sentence)) or (id,)
        return
    members: list[Gold] = []
    for member in group:
        if isinstance(member, Quote):
            members.append(member)
            continue
        document = Document(member, passages[member])
        quotes = [
            quote for answer in answers for quote in _find_all(document, answer) if _is_whole_word(document.text, quote)
        ]
        stripped = document.text.strip()
        members += quotes or ([Quote(member, document.text.index(stripped), stripped)] if stripped else [member])
    yield tuple(dict.fromkeys(members))


def _is_whole_word(text: str, quote: Quote) -> bool:
    """Return whether a quote cuts no word in two: "5" is part of 1957, but not a word of it.

    >>> [_is_whole_word("In 1957 there were 5.", Quote("d", start, "5")) for start in (5, 19)]
    [False, True]
    """
    ends = (index for index in (quote.start, quote.end) if 0 < index < len(text))
    return not any(_is_in_word(text[index - 1]) and _is_in_word(text[index]) for index in ends)


def _is_in_word(character: str) -> bool:
    """Return whether a character is a part of a word, in scripts whose words blanks set apart."""
    return category(character)[0] in "LMN" and not _UNSPACED.match(character)


def _find_all(document: Document, text: str) -> Iterator[Quote]:
    start = document.text.find(text) if text.strip() else -1
    while start >= 0:
        yield Quote(document.id, start, text)
        start = document.text.find(text, start + 1)  # places may overlap
