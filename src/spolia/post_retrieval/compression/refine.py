"""Notes that a language model improves with one passage after the other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from spolia.models.ask import Ask, Brief, replies
from spolia.models.parsers import Text
from spolia.models.protocols import CHAT, LanguageModel
from spolia.models.role import Role
from spolia.models.shortening import shortened
from spolia.operator import Operator
from spolia.post_retrieval.compression.joined import joined
from spolia.types import Failure, Ranking
from spolia.wiring import refuse_counts

NOTHING = "none"
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

    Source: `refine` in Kim et al., "AutoRAG: Automated Framework for optimization of Retrieval Augmented Generation
    Pipeline", 2024.

    >>> from spolia.models.scripted import ScriptedModel
    >>> from spolia.types import Hit, Node, Query
    >>> found = Ranking(Query("Who?"), (Hit(Node("a", "He is from Salo."), 2.0), Hit(Node("b", "At Nokia."), 1.0)))
    >>> model = ScriptedModel((("<notes>Salo</notes>", "Salo, Nokia"), ("<passage>He", "Salo")))
    >>> [hit.node.text for hit in Refine(model)(found)]
    ['Salo, Nokia']
    """

    llm: LanguageModel
    role: Role[str] = REFINE
    characters: int = 8_000
    max_tokens: int = 512

    waits: ClassVar[bool] = True
    needs: ClassVar[Mapping[str, frozenset[str]]] = {"llm": frozenset((CHAT,))}

    def __post_init__(self) -> None:
        refuse_counts(self, "characters", "max_tokens")

    def apply(self, value: Ranking, /) -> Ranking:
        if not value.hits:
            return value
        notes, ask = "", Ask(self.llm, self.role, self.max_tokens)
        for node in value.nodes:
            passage = shortened(node.shown_text, self.characters)
            known = shortened(notes, self.characters)
            (said,) = replies(ask, [Brief.of(notes=known, passage=passage, question=value.query.question)])
            notes = notes or passage if isinstance(said, Failure) or said == NOTHING else said
        return value.but(hits=(joined(value.hits, notes),))

    def calls(self, rows: int | None = None, /) -> int | None:
        return None
