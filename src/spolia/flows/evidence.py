"""What flows gather: from which sources, how it is shown to a model, and how its reply cites it."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from typing import Self

from spolia.core.operator import Retriever
from spolia.core.run_context import note
from spolia.generation.prompt import cite_passage, fit_passages, number_passages
from spolia.generation.reader import abstains
from spolia.models.parsers.parser import MARKER
from spolia.models.parsers.tags import Markers
from spolia.models.parsers.words import Words
from spolia.models.prompting.role import Ask
from spolia.retrieval.multi_source import Sources, search_sources
from spolia.types import Answer, Query, Ranking, State

Places = dict[str, str | tuple[str, ...]]
"""What a prompt shows, by place."""

CHARACTERS = 20_000
"""Of all passages in a prompt together."""


def shown(found: Ranking, best_last: bool = False) -> tuple[str, ...]:
    """The passages that fit into a prompt, numbered by rank, each with its place."""
    texts = number_passages(fit_passages(found, len(found) or 1, CHARACTERS), CHARACTERS)
    return texts[::-1] if best_last else texts


def newest(found: Ranking) -> tuple[str, ...]:
    """The passages that were found last, as many as fit into a prompt, each with its number among all of them."""
    room, first = CHARACTERS, len(found)
    for node in reversed(found.nodes):
        room -= len(node.shown_text)
        if room < 0 and first < len(found):
            note(f"The prompt holds the last {len(found) - first} of {len(found)} passages.", counted=True)
            break
        first -= 1
    return number_passages(found, CHARACTERS, first)


def citing(said: str, found: Ranking) -> Answer:
    """The answer that a reply is: its marks `[1]` become citations of the passages that were shown.

    It need not have any: these prompts ask for none, or only where a passage says it and no chain or log does.
    A reply that says that the model does not know is an abstention.

    >>> from spolia.types import Hit, Node
    >>> found = Ranking(Query("Who?"), (Hit(Node("n", "Olsen.", uri="a.txt"), 1.0),))
    >>> citing("Olsen [1][7]", found).citations[0].uri, citing("Olsen [1][7]", found).text
    ('a.txt', 'Olsen [1]')
    >>> citing("I do not know [1].", found).abstained
    True
    """
    marks = Markers(len(found))
    text = marks.feed(said) + marks.end()
    if abstains(text, bool(marks.used)):
        return Answer(MARKER.sub("", text), stop_reason="abstained", evidence=found)
    citations = tuple(cite_passage(number, found.nodes[number - 1]) for number in marks.used)
    return Answer(text, citations, evidence=found, faults=marks.faults(needs_marks=False))


def nothing(query: Query) -> Ranking:
    """No passage yet."""
    return Ranking(query, ())


def together(rankings: Iterable[Ranking]) -> Ranking:
    """All hits, those of the first ranking before the others."""
    return reduce(Ranking.extended, rankings)


def everywhere(query: Query, sources: Sources) -> Ranking:
    """What all sources find, but for those that fail."""
    return together(found for _, found in search_sources(query, sources))


def instead_of(kept: tuple[str, Ranking], query: Query, source: tuple[str, Retriever]) -> tuple[str, Ranking]:
    """What a source finds, with its name; `kept` if it fails or finds nothing, which is counted."""
    name, new = next(search_sources(query, (source,), needed=False), kept)
    if new.hits:
        return name, new
    note(f"{name} found nothing, and what {kept[0]} found is kept.", counted=True)
    return kept


def preferring(sources: Sources, name: str) -> Sources:
    """The sources, the one of a name before the others."""
    return tuple(sorted(sources, key=lambda source: source[0] != name.strip()))


@dataclass(frozen=True)
class Gathered(State):
    """Retrieved passages, and past thoughts, actions and observations, oldest first."""

    found: Ranking
    log: tuple[str, ...] = ()
    answer: str = ""

    def shown(self) -> Places:
        """What the model sees of it."""
        return {"question": self.found.query.question, "log": self.log, "passages": newest(self.found)}

    def turn(self, ask: Ask, **places: str) -> dict[str, str]:
        """Thought and action of the model's reply; where no action can be read at first, a search for the question."""
        said: dict[str, str] = ask.reply(self.sample, **places, **self.shown())
        return said or ({} if self.log else {"search": self.found.query.question})

    def noting(self, *lines: str, new: Ranking | None = None) -> Self:
        """With one entry more of these lines, but for empty ones, and further passages."""
        entry = "\n".join(filter(None, lines))[:CHARACTERS]
        return self.but(log=(*self.log, entry), found=self.found if new is None else self.found.extended(new))

    def concluded(self, force: Ask) -> Answer:
        """The answer that the model has given, else the one that it is made to give."""
        said = self.answer if self.stop == "answered" else force.reply(self.sample, **self.shown())
        return citing(said, self.found)


_CORRECT = Words({
    "(?:fully |completely )?correct|(?:完全)?正[确確](?:的)?|정확(?:함|합니다|하다)?|맞(?:음|습니다|다)|正しい": True,
    "(?:part(?:ial)?ly|mostly|largely)[\\W_]+correct|(?:部分|基本)正[确確]|(?:부분적으로|일부) (?:정확|맞)\\w*": False,
    "incorrect|not[\\W_]+correct|wrong|不正[确確]|[错錯][误誤]|부정확\\w*|정확하지 않\\w*|틀\\w+|正しくない": False,
})  # fmt: skip
"""The evaluations that the prompt asks for, also as models write them that think in another language."""


def is_correct(evaluation: str) -> bool:
    """Whether an answer is evaluated as correct, not in part only.

    >>> [is_correct(said) for said in ("**CORRECT**", "PARTIALLY CORRECT", "正确", "部分正确", "정확함", "부정확함")]
    [True, False, True, False, True, False]
    """
    return _CORRECT.find_choice(evaluation) is True
