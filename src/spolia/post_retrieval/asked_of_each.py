"""What the rerankers have in common that ask a language model once for each hit."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar

from spolia.errors import ModelError, ModelRejected
from spolia.models import template
from spolia.models.prompted import Prompted
from spolia.models.protocols import LanguageModel
from spolia.post_retrieval.judging import Judging
from spolia.surrounding import gather, note
from spolia.types import Failure, Prompt, Ranking
from spolia.wiring import refuse_counts


class AskedOfEach(Prompted, Judging):
    """Base of the rerankers that send a prompt for each hit; where they wait, several at the same time.

    One hit that cannot be judged leaves all in their order (`Judging`): scores of some and not of others would tell
    which calls failed, not which hits are good.

    A subclass is a frozen dataclass with these fields and those of `Judging`, and writes `score`.

    Fields:
        llm: the language model.
        prompt: the prompt file.
        characters: of a hit that the model is shown, at most.

    Class attributes:
        places: what the prompt file must have a place for.

    Raises:
        ModelError: the prompt file cannot be read, or lacks a place.
    """

    llm: LanguageModel
    prompt: str
    characters: int

    places: ClassVar[tuple[str, ...]] = ("passage",)

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_counts(self, "characters")

    @abstractmethod
    def score(self, prompt: Prompt, question: str, /) -> float:
        """The score of the hit that a prompt shows; NaN where there is none."""

    def scores(self, question: str, texts: Sequence[str], /) -> Sequence[float]:
        prompts = [self._prompt(question, text) for text in texts]
        if long := sum(len(text) > self.characters for text in texts):
            note(f"{type(self).__name__} is shown the first {self.characters} characters of {long} hits.")
        found = gather([partial(self.score, prompt, question) for prompt in prompts], waits=self.waits)
        for one in found:
            if isinstance(one, Failure):
                raise one.raised()
        return [one for one in found if not isinstance(one, Failure)]

    def reads(self, value: Ranking, /) -> object:
        return super().reads(value), self._template().digest

    def calls(self, rows: int | None = None, /) -> int | None:
        return self.judged

    def _prompt(self, question: str, text: str) -> Prompt:
        return Prompt(self._template().filled({"question": question, "passage": text[: self.characters]}))

    def _template(self) -> template.Template:
        found = template.read(self.prompt)
        if missing := [name for name in self.places if name not in found.places]:
            raise ModelError(
                f"The prompt {self.prompt!r} has no place {{{{{missing[0]}}}}}. Write it where that is to stand."
            )
        return found


def able(llm: LanguageModel, kind: Any, capability: str) -> Any:
    """The model, if it can do something more.

    Args:
        kind: the protocol of it.

    Raises:
        ModelRejected: it cannot.
    """
    if isinstance(llm, kind) and capability in llm.capabilities:
        return llm
    raise ModelRejected(f"{llm.name} has no {capability!r}. Write a model that has, as CompletionModel.")
