"""Passages that a language model merges, some at a time, until one text is left."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from spolia.models.ask import Ask, Brief, replies
from spolia.models.parsers import Text
from spolia.models.protocols import CHAT, LanguageModel
from spolia.models.role import Role
from spolia.models.shortening import shortened
from spolia.operator import Operator
from spolia.post_retrieval.compression.joined import joined
from spolia.post_retrieval.compression.refine import NOTHING
from spolia.types import Failure, Ranking
from spolia.wiring import refuse_counts

MERGE: Role[str] = Role("spolia:post_retrieval/prompts/merge.txt", Text(), default=NOTHING)


@dataclass(frozen=True)
class TreeSummarise(Operator[Ranking, Ranking]):
    """One hit in the place of all: neighbouring passages are merged by a language model, `width` at a time, then what
    that gave, until one text is left.

    n passages take ⌈log_width n⌉ levels; those of one level are asked at the same time. What stands alone goes up as it
    is, so a single hit stays as it was. A call that fails, or a reply that cannot be read, leaves the texts themselves,
    and the result is counted as degraded. Citations point to all passages.

    Args:
        llm: the language model.
        width: texts that become one.
        role: prompt with the places `{{passages}}` and `{{question}}`, reader of the reply, what holds when it cannot
            be read.
        characters: of a text that are shown at most.
        max_tokens: longest text that is written.

    Source: `tree_summarize` in Kim et al., "AutoRAG: Automated Framework for optimization of Retrieval Augmented
    Generation Pipeline", 2024.

    >>> from spolia.models.scripted import ScriptedModel
    >>> from spolia.types import Hit, Node, Query
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

    waits: ClassVar[bool] = True
    needs: ClassVar[Mapping[str, frozenset[str]]] = {"llm": frozenset((CHAT,))}

    def __post_init__(self) -> None:
        refuse_counts(self, "characters", "max_tokens")
        refuse_counts(self, "width", least=2)

    def apply(self, value: Ranking, /) -> Ranking:
        if len(value.hits) < 2:
            return value
        texts = [node.shown_text for node in value.nodes]
        while len(texts) > 1:
            texts = self._level(texts, value.query.question)
        return value.but(hits=(joined(value.hits, texts[0]),))

    def calls(self, rows: int | None = None, /) -> int | None:
        return None

    def _level(self, texts: Sequence[str], question: str) -> list[str]:
        groups = [texts[at : at + self.width] for at in range(0, len(texts), self.width)]
        briefs = [Brief.of(question=question, passages=self._shown(group)) for group in groups if len(group) > 1]
        said = iter(replies(Ask(self.llm, self.role, self.max_tokens), briefs))
        return [_merged(group, next(said)) if len(group) > 1 else group[0] for group in groups]

    def _shown(self, group: Sequence[str]) -> tuple[str, ...]:
        return tuple(shortened(text, self.characters) for text in group)


def _merged(group: Sequence[str], said: str | Failure) -> str:
    return "\n\n".join(group) if isinstance(said, Failure) or said == NOTHING else said
