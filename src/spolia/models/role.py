"""A role: the one place where a prompt file, the reader of its replies and what holds when they cannot be read live."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from spolia.errors import ModelError
from spolia.models import template
from spolia.models.delimiters import without_marks
from spolia.models.parsers import Parser
from spolia.models.protocols import STRUCTURED, KeepsSchemas, LanguageModel
from spolia.models.template import Filling
from spolia.surrounding import degrade, note, retract
from spolia.types import Generation, Message, Prompt, Value

T = TypeVar("T")


@dataclass(frozen=True)
class Role(Value, Generic[T]):
    """What a language model is asked for. A field of an operator, and its prompt file a dimension to search.

    A reply that cannot be read is sent back once with what is wrong; if the second cannot be read either, `default`
    holds, and the result is marked as degraded, so that it is counted and not cached.

    Args:
        prompt: the file: a path, or `package:path/in/it` (`spolia.models.template`).
        parser: reads the reply.
        default: a reply that the parser can read, which holds when the model's cannot be read.
        repair: the file with which a reply is sent back; its place `{{reason}}` is what is wrong. Empty: no second try.
        language: of the prompt files, `en`, `zh`, `ko` or `ja`; empty for that of what is asked, by its script. A file
            that is not there in it is taken as it is.

    >>> from pathlib import Path
    >>> from tempfile import mkdtemp
    >>> from spolia.models.parsers import YesNo
    >>> from spolia.models.scripted import ScriptedModel
    >>> file = Path(mkdtemp(), "enough.txt")
    >>> _ = file.write_text("Is this enough to answer? Say yes or no.\\n{{passages}}")
    >>> enough = Role(str(file), YesNo(), default="no")
    >>> enough.ask(ScriptedModel(("Yes, it is.",)), {"passages": ["He worked for Nokia."]})
    True
    """

    prompt: str
    parser: Parser[T]
    default: str
    repair: str = "spolia:models/prompts/repair.txt"
    language: str = ""

    def __post_init__(self) -> None:
        template.checked_language(self.language, f"The role of {self.prompt!r}")
        try:
            self.parser.parse(self.default)
        except ValueError as error:
            raise ModelError(f"The default {self.default!r} of {self.prompt!r} cannot be read: {error}.") from error

    @property
    def scoped(self) -> bool:
        return False

    def fingerprint(self) -> str:
        """Changes with the text of the prompt files: results of another text are not taken for this one's."""
        files = [self.prompt, self.repair] if self.repair else [self.prompt]
        return "|".join(found.digest.hex() for file in files for found in template.every(file, self.language).values())

    @property
    def calls(self) -> int:
        """Of the model for one question, at most: the question, and the reply that is sent back."""
        return 2 if self.repair else 1

    @property
    def places(self) -> frozenset[str]:
        """What has a place in the prompt, whatever its language."""
        found = [one.places for one in template.every(self.prompt, self.language).values()]
        return frozenset.intersection(*found)

    def prompt_for(self, values: Filling, *, sample: int = 0) -> Prompt:
        """The prompt file with texts at its places.

        Args:
            values: by place: a text, or several texts, which become numbered blocks.
        """
        return Prompt(template.chosen(self.prompt, values, self.language).filled(values), sample)

    def ask(
        self,
        llm: LanguageModel,
        values: Filling,
        *,
        sample: int = 0,
        max_tokens: int = 512,
        temperature: float = 0.0,
        on_text: Callable[[str], None] | None = None,
    ) -> T:
        """What the parser reads in the model's reply.

        Args:
            on_text: gets the reply as it comes, for a role whose reply is what the user sees
                (`spolia.surrounding.emit`); what was sent is retracted when it cannot be read.

        Raises:
            ModelUnavailable: the model could not be asked. Never for a reply that cannot be read.
            ModelRejected: the model did not reply.
        """
        prompt = self.prompt_for(values, sample=sample)
        for may_repair in (bool(self.repair), False):
            generation = self._generated(llm, prompt, max_tokens, temperature, on_text)
            reply = generation.text
            if generation.finish_reason == "length":
                note(f"The reply to {self.prompt} was cut off at max_tokens={max_tokens}.")
            try:
                return self.parser.parse(reply)
            except ValueError as error:
                reason = str(error)
            if on_text is not None:
                retract()
            if not may_repair:
                break
            asked_again = template.chosen(self.repair, values, self.language).filled({"reason": reason})
            prompt = prompt.but(messages=(*prompt.messages, Message("assistant", without_marks(reply)), *asked_again))
        degrade(f"The reply to {self.prompt} could not be read ({reason}); its default {self.default!r} holds.")
        return self.parser.parse(self.default)

    def _generated(
        self,
        llm: LanguageModel,
        prompt: Prompt,
        max_tokens: int,
        temperature: float,
        on_text: Callable[[str], None] | None,
    ) -> Generation:
        """The reply; held to the parser's schema where it has one and the model can."""
        if STRUCTURED in llm.capabilities and isinstance(llm, KeepsSchemas) and (schema := self.parser.schema):
            return llm.structured(prompt, schema, max_tokens=max_tokens, temperature=temperature, on_text=on_text)
        return llm.generate(prompt, max_tokens=max_tokens, temperature=temperature, on_text=on_text)
