"""From gold that is passages to gold that is quotes, which survives every re-chunking."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from unicodedata import category

from spolia.errors import DataError
from spolia.stores.lexical.analysis import UNSPACED
from spolia.types import Document, Gold, Item, Quote, Value

BETWEEN = "\n\n"
_UNSPACED = re.compile(f"[{UNSPACED}]")


@dataclass(frozen=True)
class Located(Value):
    """Where passages stand, at one or several places of `documents`, which are searched instead of the passages."""

    documents: tuple[Document, ...]
    quotes: Mapping[str, tuple[Quote, ...]]

    def item(self, item: Item) -> Item:
        """A question whose gold passages are quotes; any place of a passage will do. DataError if it has none."""
        gold = tuple(tuple(dict.fromkeys(q for one in group for q in self._of(item, one))) for group in item.gold)
        old = dict(item.grades)
        grades = {str(q): old[str(one)] for group in item.gold for one in group if str(one) in old
                  for q in self._of(item, one)}  # fmt: skip
        meta = tuple(pair for pair in item.meta if pair[0] != "grades")
        hops = tuple(one.but(gold_id=self._document(one.gold_id)) for one in item.decomposition)
        return item.but(gold=gold, grades=tuple(grades.items()), meta=meta, decomposition=hops)

    def _document(self, passage: str) -> str:
        found = self.quotes.get(passage, ())
        return found[0].document if found else ""

    def _of(self, item: Item, gold: Gold) -> tuple[Quote, ...]:
        if isinstance(gold, Quote):
            inside = self.quotes.get(gold.document, ())
            return tuple(Quote(one.document, one.start + gold.start, gold.text) for one in inside) or (gold,)
        if not (found := self.quotes.get(gold, ())):
            raise DataError(
                f"Gold {gold!r} of question {item.id!r} is in none of {len(self.documents)} documents, word for "
                "word. Give the documents that the passages were cut from, as they were."
            )
        return found


def located(passages: Iterable[Document], documents: Iterable[Document]) -> Located:
    """Find passages in the documents that they were cut from, word for word, blanks around them aside.

    >>> found = located([Document("p1", "The moon pulls.")], [Document("d", "Tides. The moon pulls. So it is.")])
    >>> [str(quote) for quote in found.quotes["p1"]]
    ['d[7:22]']
    """
    kept = tuple(documents)
    return Located(kept, {one.id: tuple(q for d in kept for q in _in(d, one.text.strip())) for one in passages})


def joined(passages: Iterable[Document], by: str = "title") -> Located:
    """Put passages that follow one another, of one title or with one value of a metadata field, into documents.

    >>> passages = [Document("p1", "One.", title="A"), Document("p2", "Two.", title="A"), Document("p3", "Three.")]
    >>> found = joined(passages)
    >>> [(one.id, one.text) for one in found.documents], str(found.quotes["p2"][0])
    ([('A', 'One.\\n\\nTwo.'), ('p3', 'Three.')], 'A[6:10]')
    """
    passages = list(passages)
    fields = {"title"} if any(one.title for one in passages) else set[str]()
    fields.update(name for one in passages for name, _ in one.meta)
    if by not in fields:
        listed = ", ".join(sorted(fields)) or "nothing, since they have neither titles nor metadata"
        raise DataError(f"No passage has a {by!r} to be joined by. Join by: {listed}.")
    documents: list[Document] = []
    quotes: dict[str, tuple[Quote, ...]] = {}
    taken = set[str]()
    for key, group in groupby(passages, lambda one: str(one.title if by == "title" else dict(one.meta).get(by) or "")):
        for members in [list(group)] if key else ([one] for one in group):
            name = key or members[0].id
            id = name if name not in taken else members[0].id
            taken.add(id)
            start, text = 0, BETWEEN.join(one.text for one in members)
            for one in members:
                quotes[one.id] = (Quote(id, start, one.text),)
                start += len(one.text) + len(BETWEEN)
            documents.append(Document(id, text, title=members[0].title))
    return Located(tuple(documents), quotes)


def with_quotes(items: Iterable[Item], passages: Mapping[str, str]) -> Iterator[Item]:
    """Questions whose gold is what passages say of it: supporting sentences, else answers, else all of a passage."""
    for item in items:
        told: dict[str, list[str]] = {}
        for one in json.loads(str(dict(item.meta).get("supporting_sentences") or "[]")):
            told.setdefault(one["gold_id"], []).append(one["sentence"])
        groups = [group for old in item.gold for group in _quoted(old, told, item.answers, passages)]
        yield item.but(gold=tuple(dict.fromkeys(groups)), grades=())


def _quoted(
    group: Sequence[Gold], told: Mapping[str, Sequence[str]], answers: Sequence[str], passages: Mapping[str, str]
) -> Iterator[tuple[Gold, ...]]:
    """All the supporting sentences of a passage are needed; of answers, and of passages, any will do."""
    if len(group) == 1 and isinstance(group[0], str) and group[0] in told:
        id = group[0]
        for sentence in told[id]:
            yield tuple(_in(Document(id, passages[id]), sentence)) or (id,)
        return
    members: list[Gold] = []
    for one in group:
        if isinstance(one, Quote):
            members.append(one)
            continue
        document = Document(one, passages[one])
        found = [quote for answer in answers for quote in _in(document, answer) if _whole(document.text, quote)]
        whole = document.text.strip()
        members += found or ([Quote(one, document.text.index(whole), whole)] if whole else [one])
    yield tuple(dict.fromkeys(members))


def _whole(text: str, quote: Quote) -> bool:
    """Whether a quote cuts no word in two: "5" is part of 1957, but not a word of it.

    >>> _whole("In 1957 there were 5.", Quote("d", 5, "5")), _whole("In 1957 there were 5.", Quote("d", 19, "5"))
    (False, True)
    """
    ends = (at for at in (quote.start, quote.end) if 0 < at < len(text))
    return not any(_of_word(text[at - 1]) and _of_word(text[at]) for at in ends)


def _of_word(character: str) -> bool:
    """Whether it is a part of a word, in scripts whose words blanks set apart."""
    return category(character)[0] in "LMN" and not _UNSPACED.match(character)


def _in(document: Document, text: str) -> Iterator[Quote]:
    at = document.text.find(text) if text.strip() else -1
    while at >= 0:
        yield Quote(document.id, at, text)
        at = document.text.find(text, at + 1)
