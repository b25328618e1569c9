"""Reranking by a language model that is shown several passages at once and says their order."""

from collections.abc import Sequence
from dataclasses import dataclass

from spolia.core.run_context import note
from spolia.core.wiring import refuse_counts
from spolia.errors import WiringError
from spolia.models.parsers import Order
from spolia.models.parsers.numbers import completed
from spolia.models.prompting.role import Ask, Role
from spolia.models.protocols import LanguageModel
from spolia.post_retrieval.model_reranker import Judging

ROLE: Role[tuple[int, ...]] = Role("spolia:post_retrieval/prompts/rank.txt", Order(), default="[1]")


@dataclass(frozen=True)
class RankGPT(Judging):
    """Order hits by a language model that is shown `window` of them at a time: [2] > [1] > [3].

    Of more hits than a window holds, the last ones are ordered first; then the window moves up by `step`, so that what
    is good climbs to the top. What a reply does not name follows in the order that it had; numbers that name nothing,
    or come again, are passed over. So a reply always gives a permutation. One that cannot be read leaves its window as
    it was, after being sent back once (`Role`).

    score = 1 / rank, since the model says an order and no numbers.

    Args:
        llm: the language model.
        judged: hits that are ordered, at most; the others are left out.
        window: hits that the model is shown at once.
        step: by how many the window moves; below `window`, so that windows overlap.
        role: prompt with the places `{{question}}`, `{{passages}}` and `{{count}}`, reader of the reply, what holds
            when it cannot be read.
        characters: of a hit that the model is shown, at most.
        max_tokens: longest reply.
        top_k, strict: as for every `Judging`.

    Source: Sun et al., "Is ChatGPT good at search? Investigating large language models as re-ranking agents", EMNLP
    2023.

    >>> from spolia import Hit, Node, Query, Ranking, ScriptedModel
    >>> found = Ranking(Query("Who?"), tuple(Hit(Node(id, f"Text {id}."), 1.0) for id in "abc"))
    >>> [(hit.node.id, hit.score) for hit in RankGPT(ScriptedModel(("[3] > [1]",)), top_k=2)(found)]
    [('c', 1.0), ('a', 0.5)]
    """

    llm: LanguageModel
    top_k: int = 10
    judged: int = 100
    window: int = 20
    step: int = 10
    role: Role[tuple[int, ...]] = ROLE
    characters: int = 2_000
    max_tokens: int = 512
    strict: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_counts(self, "step", "characters", "max_tokens")
        refuse_counts(self, "window", least=2)
        if self.step >= self.window:
            raise WiringError(
                f"{self.short}: a window of {self.window} that moves by {self.step} compares nothing across windows. "
                f"Write a step below {self.window}."
            )

    def scores(self, question: str, texts: Sequence[str], /) -> Sequence[float]:
        if long := sum(len(text) > self.characters for text in texts):
            note(f"RankGPT is shown the first {self.characters} characters of {long} hits.")
        order = list(range(len(texts)))
        for start in starts(len(texts), self.window, self.step):
            shown = order[start : start + self.window]
            order[start : start + self.window] = [shown[at] for at in self._ordered_by(question, shown, texts)]
        found = [0.0] * len(texts)
        for rank, at in enumerate(order, 1):
            found[at] = 1 / rank
        return found

    def calls(self, rows: int | None = None, /) -> int | None:
        return len(starts(self.judged, self.window, self.step)) * self.role.calls

    def _ordered_by(self, question: str, shown: Sequence[int], texts: Sequence[str]) -> list[int]:
        """Places in `shown`, best first."""
        passages = [texts[at][: self.characters] for at in shown]
        ask = Ask(self.llm, self.role, self.max_tokens)
        numbers = ask.reply(question=question, passages=tuple(passages), count=str(len(passages)))
        return [number - 1 for number in completed(numbers, len(passages))]


def starts(count: int, window: int, step: int) -> list[int]:
    """Where the windows begin over so many hits, from the end to the beginning; one hit needs none.

    >>> starts(45, 20, 10), starts(20, 20, 10), starts(1, 20, 10)
    ([25, 15, 5, 0], [0], [])
    """
    if count < 2:
        return []
    found = list(range(count - window, 0, -step)) if count > window else []
    return [*found, 0]
