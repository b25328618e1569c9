"""Evidence of flows: searches of several sources, passages in prompts, and the citations of replies."""

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


def show_hits(ranking: Ranking, best_last: bool = False) -> tuple[str, ...]:
    """Return the passages that fit into a prompt, numbered by rank, each with its place."""
    # numbered before they are turned round: marks count by rank
    texts = number_passages(fit_passages(ranking, len(ranking) or 1, CHARACTERS), CHARACTERS)
    return texts[::-1] if best_last else texts


def show_newest(ranking: Ranking) -> tuple[str, ...]:
    """Return the passages found last, as many as fit into a prompt, each with its number among all passages."""
    room, first = CHARACTERS, len(ranking)
    for node in reversed(ranking.nodes):
        room -= len(node.shown_text)
        if room < 0 and first < len(ranking):  # the newest one is shown in any case
            note(f"The prompt holds the last {len(ranking) - first} of {len(ranking)} passages.", is_counted=True)
            break
        first -= 1
    return number_passages(ranking, CHARACTERS, first)


def cite_reply(reply: str, ranking: Ranking) -> Answer:
    """Turn a reply into an answer: its marks `[1]` become citations of the passages in the prompt.

    It need not have any: these prompts ask for none, or only where a passage says it and no chain or log does.
    A reply that says that the model does not know is an abstention.

    >>> from spolia.types import Hit, Node
    >>> found = Ranking(Query("Who?"), (Hit(Node("n", "Olsen.", uri="a.txt"), 1.0),))
    >>> cite_reply("Olsen [1][7]", found).citations[0].uri, cite_reply("Olsen [1][7]", found).text
    ('a.txt', 'Olsen [1]')
    >>> cite_reply("I do not know [1].", found).abstained
    True
    """
    marks = Markers(len(ranking))
    text = marks.feed(reply) + marks.end()
    if abstains(text, bool(marks.used)):
        return Answer(MARKER.sub("", text), stop_reason="abstained", evidence=ranking)
    citations = tuple(cite_passage(number, ranking.nodes[number - 1]) for number in marks.used)
    return Answer(text, citations, evidence=ranking, faults=marks.faults(needs_marks=False))


def empty_ranking(query: Query) -> Ranking:
    """Return a ranking without hits."""
    return Ranking(query, ())


def merge_rankings(rankings: Iterable[Ranking]) -> Ranking:
    """Merge all hits, those of the first ranking first."""
    return reduce(Ranking.extended, rankings)


def search_all(query: Query, sources: Sources) -> Ranking:
    """Search all sources, and leave out those that fail."""
    return merge_rankings(ranking for _, ranking in search_sources(query, sources))


def search_or_keep(fallback: tuple[str, Ranking], query: Query, source: tuple[str, Retriever]) -> tuple[str, Ranking]:
    """Search a source and return its name and ranking; return `fallback`, and note it, if it fails or has no hits."""
    name, new = next(search_sources(query, (source,), needed=False), fallback)
    if new.hits:
        return name, new
    note(f"{name} found nothing, and what {fallback[0]} found is kept.", is_counted=True)
    return fallback


def put_first(sources: Sources, name: str) -> Sources:
    """Move the source of a name to the front."""
    # a stable sort: the others keep their order
    return tuple(sorted(sources, key=lambda source: source[0] != name.strip()))


@dataclass(frozen=True)
class Gathered(State):
    """Retrieved passages, and past thoughts, actions and observations, oldest first."""

    found: Ranking
    log: tuple[str, ...] = ()
    answer: str = ""

    def prompt_places(self) -> Places:
        """Return what the model sees of the log."""
        return {"question": self.found.query.question, "log": self.log, "passages": show_newest(self.found)}

    def take_turn(self, ask: Ask, **places: str) -> dict[str, str]:
        """Read thought and action from the model's reply; if the first one has no action, search for the question."""
        reply: dict[str, str] = ask.reply(self.sample, **places, **self.prompt_places())
        return reply or ({} if self.log else {"search": self.found.query.question})

    def add_entry(self, *lines: str, new: Ranking | None = None) -> Self:
        """Add an entry of these lines, without empty ones, and further passages."""
        entry = "\n".join(filter(None, lines))[:CHARACTERS]  # a reply that never ends would fill every later prompt
        return self.but(log=(*self.log, entry), found=self.found if new is None else self.found.extended(new))

    def conclude(self, force: Ask) -> Answer:
        """Return the answer that the model has given, or force one."""
        reply = self.answer if self.stop == "answered" else force.reply(self.sample, **self.prompt_places())
        return cite_reply(reply, self.found)


_CORRECT = Words({
    "(?:fully |completely )?correct|(?:完全)?正[确確](?:的)?|정확(?:함|합니다|하다)?|맞(?:음|습니다|다)|正しい": True,
    "(?:part(?:ial)?ly|mostly|largely)[\\W_]+correct|(?:部分|基本)正[确確]|(?:부분적으로|일부) (?:정확|맞)\\w*": False,
    "incorrect|not[\\W_]+correct|wrong|不正[确確]|[错錯][误誤]|부정확\\w*|정확하지 않\\w*|틀\\w+|正しくない": False,
})  # fmt: skip
"""The evaluations that the prompt asks for, also as models write them that think in another language."""


def is_correct(evaluation: str) -> bool:
    """Return whether an answer is evaluated as fully correct.

    >>> [is_correct(reply) for reply in ("**CORRECT**", "PARTIALLY CORRECT", "正确", "部分正确", "정확함", "부정확함")]
    [True, False, True, False, True, False]
    """
    return _CORRECT.find_choice(evaluation) is True
