"""Summaries: one hit in place of several."""

from collections.abc import Sequence
from dataclasses import dataclass

from spolia.core.call_bounds import unknown
from spolia.core.operator import Operator
from spolia.core.type_compatibility import refuse_counts
from spolia.models.parsers import NOTHING, Text
from spolia.models.prompting.role import Ask, Brief, Role, replies
from spolia.models.prompting.template import shorten
from spolia.models.protocols import LanguageModel
from spolia.types import Failure, Hit, Node, Ranking


def merge_hits(hits: Sequence[Hit], text: str) -> Hit:
    """Return a text made of some hits as one hit: with the best one's id and score; citations point to all of them.

    >>> hit = merge_hits([Hit(Node("a", "One."), 2.0), Hit(Node("b", "Two."), 1.0)], "One and two.")
    >>> hit.node.id, hit.node.text, hit.score, [node.id for node in hit.found]
    ('a', 'One and two.', 2.0, ['a', 'b'])
    """
    nodes = dict.fromkeys(node for hit in hits for node in hit.found or (hit.node,))
    best = hits[0]
    node = Node(best.node.id, text, best.node.document, best.node.group, uri=best.node.uri)
    return Hit(node, best.score, best.parts, tuple(nodes))


REFINE: Role[str] = Role("spolia:post_retrieval/prompts/refine.txt", Text(), default=NOTHING)


@dataclass(frozen=True)
class Refine(Operator[Ranking, Ranking]):
    """One hit in the place of all: notes that a language model improves with one passage after the other, best first.

    n passages take n calls. A call that fails, or a reply that cannot be read, leaves the notes as they are (the first
    ones are then the passage itself), and the result is counted as degraded. Citations point to all passages.

    Args:
        llm: the language model.
        role: prompt with the places `{{notes}}`, `{{passage}}` and `{{question}}`, reader of the reply, what holds when
            it cannot be read.
        characters: of a passage, and of the notes, that are shown at most.
        max_tokens: longest notes.

    Source: `refine` in Kim et al., "AutoRAG", 2024 (arXiv 2410.20878).

    >>> from spolia import Hit, Node, Query, ScriptedModel
    >>> found = Ranking(Query("Who?"), (Hit(Node("a", "He is from Salo."), 2.0), Hit(Node("b", "At Nokia."), 1.0)))
    >>> model = ScriptedModel((("<notes>Salo</notes>", "Salo, Nokia"), ("<passage>He", "Salo")))
    >>> [hit.node.text for hit in Refine(model)(found)]
    ['Salo, Nokia']
    """

    llm: LanguageModel
    role: Role[str] = REFINE
    characters: int = 8_000
    max_tokens: int = 512

    def __post_init__(self) -> None:
        refuse_counts(self, "characters", "max_tokens")

    def apply(self, value: Ranking, /) -> Ranking:
        if not value.hits:
            return value
        notes, ask = "", Ask(self.llm, self.role, self.max_tokens)
        for node in value.nodes:
            passage = shorten(node.shown_text, self.characters)
            short_notes = shorten(notes, self.characters)
            (reply,) = replies(
                ask, [Brief.from_texts(notes=short_notes, passage=passage, question=value.query.question)]
            )
            notes = notes or passage if isinstance(reply, Failure) or reply == NOTHING else reply
        return value.but(hits=(merge_hits(value.hits, notes),))

    calls = unknown


MERGE: Role[str] = Role("spolia:post_retrieval/prompts/merge.txt", Text(), default=NOTHING)


@dataclass(frozen=True)
class TreeSummarise(Operator[Ranking, Ranking]):
    """One hit in the place of all: neighbouring passages are merged by a language model, `width` at a time, then what
    that gave, until one text is left.

    n passages take ⌈log_width n⌉ levels; those of one level are asked at the same time. A lone passage goes up as it
    is, so a single hit stays as it was. A call that fails, or a reply that cannot be read, leaves the texts themselves,
    and the result is counted as degraded. Citations point to all passages.

    Args:
        llm: the language model.
        width: texts that become one.
        role: prompt with the places `{{passages}}` and `{{question}}`, reader of the reply, what holds when it cannot
            be read.
        characters: of a text that are shown at most.
        max_tokens: longest text that is written.

    Source: `tree_summarize` in Kim et al., "AutoRAG", 2024 (arXiv 2410.20878).

    >>> from spolia import Hit, Node, Query, ScriptedModel
    >>> found = Ranking(Query("Who?"), tuple(Hit(Node(id, f"Text {id}."), 1.0) for id in "abc"))
    >>> model = ScriptedModel((("ab.*Text c", "abc"), ("(?s)Text a.*Text b", "ab"), "abc"))
    >>> [hit.node.text for hit in TreeSummarise(model, width=2)(found)]
    ['abc']
    """

    llm: LanguageModel
    width: int = 5
    role: Role[str] = MERGE
    characters: int = 8_000
    max_tokens: int = 512

    def __post_init__(self) -> None:
        refuse_counts(self, "characters", "max_tokens")
        refuse_counts(self, "width", minimum=2)  # with 1 a level would never be shorter than the one below

    def apply(self, value: Ranking, /) -> Ranking:
        if len(value.hits) < 2:
            return value
        texts = [node.shown_text for node in value.nodes]
        while len(texts) > 1:
            texts = self._merge_level(texts, value.query.question)
        return value.but(hits=(merge_hits(value.hits, texts[0]),))

    calls = unknown

    def _merge_level(self, texts: Sequence[str], question: str) -> list[str]:
        groups = [texts[start : start + self.width] for start in range(0, len(texts), self.width)]
        briefs = [
            Brief.from_texts(question=question, passages=self._shorten_group(group))
            for group in groups
            if len(group) > 1
        ]
        # in turn: lone passages were not asked
        merged_texts = iter(replies(Ask(self.llm, self.role, self.max_tokens), briefs))
        return [_choose_text(group, next(merged_texts)) if len(group) > 1 else group[0] for group in groups]

    def _shorten_group(self, group: Sequence[str]) -> tuple[str, ...]:
        return tuple(shorten(text, self.characters) for text in group)


def _choose_text(group: Sequence[str], reply: str | Failure) -> str:
    return "\n\n".join(group) if isinstance(reply, Failure) or reply == NOTHING else reply
