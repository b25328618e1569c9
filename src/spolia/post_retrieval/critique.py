"""A language model says which hits are of use."""

from dataclasses import dataclass

from spolia.core.call_bounds import unknown
from spolia.core.operator import Operator
from spolia.core.run_context import degrade
from spolia.core.wiring import refuse_counts
from spolia.models.parsers import YesNo
from spolia.models.prompting.excerpt import shortened
from spolia.models.prompting.role import Ask, Brief, Role, replies
from spolia.models.protocols import LanguageModel
from spolia.types import Ranking

USEFUL: Role[bool] = Role("spolia:post_retrieval/prompts/useful.txt", YesNo(), default="yes")


@dataclass(frozen=True)
class Critique(Operator[Ranking, Ranking]):
    """The hits that a language model finds of use for the question, one call for each; order and scores stay.

    What cannot be judged stays: a verdict that cannot be read, a call that fails. Where the model drops all of them,
    the best one stays all the same. Either is recorded, and the result counted as degraded.

    Args:
        llm: the language model.
        role: prompt with the places `{{passage}}` and `{{question}}`, reader of the verdict, what holds when it cannot
            be read.
        characters: of a hit that are shown, at most.
        max_tokens: longest reply.

    Raises:
        ModelError: when it runs, for a prompt file that cannot be read.

    Source: LLM-Critique in Gao et al., "Modular RAG", 2024 (arXiv 2407.21059).

    >>> from spolia import Hit, Node, Query, ScriptedModel
    >>> texts = {"a": "Ships wait for the tide.", "b": "Salt is dug in mines."}
    >>> found = Ranking(Query("Why do ships wait?"), tuple(Hit(Node(id, text), 1.0) for id, text in texts.items()))
    >>> [hit.node.id for hit in Critique(ScriptedModel((("Salt", "no"), "yes")))(found)]
    ['a']
    """

    llm: LanguageModel
    role: Role[bool] = USEFUL
    characters: int = 8_000
    max_tokens: int = 64

    def __post_init__(self) -> None:
        refuse_counts(self, "characters", "max_tokens")

    def apply(self, value: Ranking, /) -> Ranking:
        question = value.query.question
        briefs = [
            Brief.of(question=question, passage=shortened(node.shown_text, self.characters)) for node in value.nodes
        ]
        verdicts = replies(Ask(self.llm, self.role, self.max_tokens), briefs)
        kept = tuple(hit for hit, said in zip(value.hits, verdicts, strict=True) if said is not False)
        if value.hits and not kept:
            said = f"{self.llm.name} found none of {len(value.hits)} hits of use; the best one stays."
            degrade(said, partly=True)
            kept = value.hits[:1]
        return value.but(hits=kept)

    calls = unknown
