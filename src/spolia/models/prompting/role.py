"""Requests of operators to language models: with a prompt file, through one function, with failures recorded alike."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Self, TypeVar

from spolia.core.operator import Operator
from spolia.core.run_context import degrade, emit, is_streamed, note, recall_reply, record_exchange, retract
from spolia.core.validation import validate
from spolia.errors import BudgetSpent, EmptyReply, ModelError, ModelRejected, ModelUnavailable, ThoughtCut
from spolia.models.marks import (
    ANSWER,
    CHANNELS,
    CLOSES,
    FINAL,
    LONGEST_ANSWER,
    OPENS,
    THOUGHTS,
    escape_marks,
    join_patterns,
)
from spolia.models.parsers import Parser, strip_thoughts
from spolia.models.parsers.parser import prepend_thought
from spolia.models.prompting import template
from spolia.models.prompting.template import Filling, Setting, Template
from spolia.models.prompting.thought_budget import ask_with_thought
from spolia.models.protocols import STRUCTURED, KeepsSchemas, LanguageModel, ignore_text
from spolia.types import Addressed, Failure, Generation, Message, Prompt, Token, Value, digest_of, lazy_property

T = TypeVar("T")


@dataclass(frozen=True)
class PromptFile(Value):
    """Prompt file, as something outside the flow whose content may change.

    Args:
        place: of the file; see `spolia.models.prompting.template`.
        language: the only one of the prompt; empty for the question's language.
    """

    place: str
    language: str = ""

    waits: ClassVar[bool] = False
    scoped: ClassVar[bool] = False

    def fingerprint(self) -> str:
        """Return the hashes of the file and of its translations, which change with their texts."""
        return "|".join(file.digest.hex() for file in template.read_all(self.place, self.language).values())


class Prompted:
    """Mixin for an operator whose field `prompt` names a file: the file is one of its resources, as a `Role` is.

    Class attributes:
        places: what the file must have a place for.
        language: of the file; empty for that of the question. A field where it may be chosen.
    """

    prompt: str
    language: ClassVar[str] = ""
    places: ClassVar[tuple[str, ...]] = ()

    @property
    def prompt_file(self) -> str:
        """Return the place of its prompt file."""
        return self.prompt

    @lazy_property
    def resources(self) -> tuple[Addressed, ...]:
        """Return stores, models and its prompt file."""
        return (*super().resources, PromptFile(self.prompt_file, self.language))  # type: ignore[misc]

    def template(self, question: str) -> Template:
        """Return the prompt file in the language of a question; ModelError if it cannot be read or lacks a place."""
        loaded = template.read_translated(self.prompt_file, {"question": question}, self.language)
        _refuse_without(self.prompt, self.places, loaded.places)
        return loaded


def _refuse_without(prompt: str, required: Sequence[str], places: frozenset[str]) -> None:
    if missing := [name for name in required if name not in places]:
        raise ModelError(f"The prompt {prompt!r} has no place {{{{{missing[0]}}}}}. Write it where that is to stand.")


def generate_reply(
    llm: LanguageModel,
    prompt: Prompt,
    on_text: Callable[[str], None] | None,
    *,
    schema: Mapping[str, Any] | None = None,
    title: str = "",
    max_tokens: int,
    **settings: Any,
) -> Generation:
    """Get a model's reply to a prompt: the one way in which operators get one.

    Raises:
        ThoughtCut: what the model thought has filled the reply.

    Args:
        on_text: gets the reply, piece by piece if the run is streamed, else when it is complete: a stream that breaks
            can be asked for again as long as nobody has read its beginning.
        schema: what the reply is held to, if the model can.
        title: what the prompt is called in messages.
        settings: more arguments of `LanguageModel.generate`.
    """
    settings |= {"max_tokens": max_tokens}
    was_asked, is_read = False, on_text is not None and is_streamed()
    # A reply that nobody reads yet is streamed all the same, so that a slow server does not time out.
    listener = on_text if is_read or on_text is None else ignore_text

    def ask(tokens: int) -> Generation:
        nonlocal was_asked
        if was_asked and on_text is not None:
            retract()  # a thought that was cut
        was_asked = True
        arguments = settings | {"max_tokens": tokens}
        if schema and STRUCTURED in llm.capabilities and isinstance(llm, KeepsSchemas):
            return llm.structured(prompt, schema, on_text=listener, **arguments)
        return llm.generate(prompt, on_text=listener, **arguments)

    generation = recall_reply(
        lambda: _reply_key(llm, prompt, schema, settings), lambda: ask_with_thought(llm, ask, max_tokens)
    )
    if on_text is not None and not (was_asked and is_read):
        on_text(generation.text)
    record_exchange(llm.name, prompt, generation)
    if generation.finish_reason == "length":
        note(f"The reply{f' to {title}' if title else ''} was cut off at max_tokens={max_tokens}.", is_counted=True)
    return generation


def _reply_key(
    llm: LanguageModel, prompt: Prompt, schema: Mapping[str, Any] | None, settings: Mapping[str, Any]
) -> bytes | None:
    """Return the key that a reply depends on: the model, the rendered prompt, the settings. None for a model without a
    fingerprint."""
    if (fingerprint := llm.fingerprint()) is None:
        return None
    request = json.dumps([schema, settings], sort_keys=True, default=repr)
    try:
        return digest_of(("reply", llm, fingerprint, prompt, prompt.role, request))
    except TypeError:
        return None


def generate_answer(
    llm: LanguageModel,
    prompt: Prompt,
    on_text: Callable[[str], None],
    *,
    max_tokens: int,
    take_back: Callable[[], None] = retract,
    **settings: Any,
) -> Generation:
    """Get a reply that is an answer, as `generated` does, without the thought (`<think>…</think>`) that it begins with.

    A server that does not tell thoughts apart may send one without its beginning, which is part of the prompt then. It
    is handed to `on_text` like an answer, until its end.

    Args:
        take_back: called when all that `on_text` got was such a thought.
    """
    pending: str | None = ""
    tail, has_ended = "", False

    def tell(piece: str) -> None:
        nonlocal pending, tail, has_ended
        if pending is None:
            *thought, tail = _CLOSING.split(tail + piece)
            if not thought:
                # The mark that ends a thought may be split between two pieces.
                tail = tail[-_LONGEST_CLOSING:]
                return on_text(piece)
            take_back()
            pending, piece, has_ended = "", tail, True
        if has_ended:  # blanks after a thought are no part of the answer
            pending, piece = "", (pending + piece).lstrip()
        answer = after_thought(pending + piece)
        if answer is not None:
            pending, tail = None, answer[-_LONGEST_CLOSING:]
            return on_text(answer)
        pending += piece
        if opening := _BEGUN.match(pending):
            pending = opening[0] + pending[opening.end() :][-_LONGEST_CLOSING:]  # enough to see its end
        return None

    generation = generate_reply(llm, prompt, tell, max_tokens=max_tokens, **settings)
    answer = after_thought(generation.text)
    if answer is None and (rest := _after_last_thought(generation.text)) and not _BEGUN.match(rest):
        answer = rest
        on_text(answer)
    return generation.but(text=answer or "", tokens=_answer_tokens(answer or "", generation))


def _answer_tokens(answer: str, generation: Generation) -> tuple[Token, ...]:
    """Return the tokens of the answer, which ends the reply."""
    skipped, tokens = len(generation.text) - len(answer), list[Token]()
    if not skipped:
        return generation.tokens
    for token in generation.tokens:
        if skipped < len(token.text):
            tokens.append(token.but(text=token.text[skipped:]) if skipped > 0 else token)
        skipped -= len(token.text)
    return tuple(tokens)


_CHANNELS = join_patterns(tuple(map(re.escape, CHANNELS)))
_BEGUN = re.compile(
    rf"\s*+(?:{OPENS}(?:{join_patterns(THOUGHTS)}){CLOSES}|(?-i:{_CHANNELS})|<\|channel\|>final)", re.IGNORECASE
)
_CLOSING = re.compile(rf"{OPENS}/(?:{join_patterns(THOUGHTS)})\s{{0,3}}{CLOSES}|{ANSWER}", re.IGNORECASE)
_LONGEST_CLOSING = max(LONGEST_ANSWER, max(map(len, THOUGHTS)) + 6)
_FIRST = (*(f"<{name}>" for name in THOUGHTS), *map(str.lower, CHANNELS), FINAL)
"""What a reply with a thought begins with."""


def after_thought(text: str) -> str | None:
    """Return the text after the thought with which a reply begins; None within it, or where one may yet begin.

    >>> after_thought(" <think>Nokia?</think> Nokia."), after_thought("<think>Nokia"), after_thought("1 < 2")
    ('Nokia.', None, '1 < 2')
    >>> after_thought("Sony? No.</think> Nokia."), after_thought("Sony?</think><think>")
    ('Nokia.', None)
    """
    rest = _after_last_thought(text)
    beginning = rest.strip().lower().replace("◁", "<")
    return None if _BEGUN.match(rest) or any(first.startswith(beginning) for first in _FIRST) else rest


def _after_last_thought(text: str) -> str:
    """Return the text after the last end of a thought, or all of it."""
    *thought, rest = _CLOSING.split(text)
    return rest.lstrip() if thought else text


@dataclass(frozen=True)
class Role(Value, Generic[T]):
    """Task for a language model. It is a field of an operator, and its prompt a dimension to search.

    A reply that is empty or cannot be read is sent back once with what is wrong, which is counted; if the second cannot
    be read either, `default` holds, and the result is marked as degraded, so that it is counted and not cached.
    Operators ask through `Ask`.

    Args:
        prompt: the file: a path, or `package:path/in/it` (`spolia.models.prompting.template`). A text with `{{places}}`
            or several lines is the prompt itself.
        parser: reads the reply.
        default: a reply that the parser can read, which holds when the model's cannot be read; None to fail instead.
        repair: the file with which a reply is sent back; its place `{{reason}}` is the error. Empty: no second try.
        language: of the prompt files, `en`, `zh`, `ko` or `ja`; empty for the question's language, by its script. A
            file without a translation is taken as it is.

    >>> from spolia.models import ScriptedModel, YesNo
    >>> enough = Role("Is this enough to answer? Say yes or no.\\n{{passages}}", YesNo(), default="no")
    >>> enough.ask(ScriptedModel(("Yes, it is.",)), {"passages": ["He worked for Nokia."]})
    True
    """

    prompt: str
    parser: Parser[T]
    default: str | None = None
    repair: str = "spolia:models/prompts/repair.txt"
    language: str = ""

    def __post_init__(self) -> None:
        validate(self, ModelError)
        template.check_language(self.language, f"The role of {self.title!r}")
        try:
            if self.default is not None:
                self.parser.parse(self.default)  # here, not when the first reply fails after hours of a run
        except ValueError as error:
            raise ModelError(f"The default {self.default!r} of {self.title!r} cannot be read: {error}.") from error

    waits: ClassVar[bool] = False
    scoped: ClassVar[bool] = False

    def fingerprint(self) -> str:
        """Return the hashes of the prompt files, so that results of another text are not taken for this one's."""
        files = [self.prompt, self.repair] if self.repair else [self.prompt]
        return "|".join(
            version.digest.hex() for file in files for version in template.read_all(file, self.language).values()
        )

    @property
    def title(self) -> str:
        """Return the prompt's title in messages."""
        return template.title_of(self.prompt)

    @property
    def calls(self) -> int:
        """Return the largest number of calls for one question: the question, and the reply that is sent back."""
        return 2 if self.repair else 1

    @property
    def places(self) -> frozenset[str]:
        """Return the places that the prompt has in every language."""
        places_by_language = [file.places for file in template.read_all(self.prompt, self.language).values()]
        return frozenset.intersection(*places_by_language)

    def refuse_without(self, *places: str) -> None:
        """Raise ModelError for a prompt file that would not show the model what it is asked about."""
        _refuse_without(self.prompt, places, self.places)

    def prompt_for(self, values: Filling, *, sample: int = 0) -> Prompt:
        """Return the prompt file with texts at its places; several texts become numbered blocks."""
        return Prompt(template.read_translated(self.prompt, values, self.language).fill(values), sample, self.title)

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
        """Ask the model and return the parsed reply.

        Args:
            on_text: gets the reply as it comes, for a role whose reply is what the user sees
                (`spolia.core.run_context.emit`); what was sent is retracted when it cannot be read.

        Raises:
            BudgetSpent: before the first reply, or in a loop, which then ends; else the default holds.
            ModelUnavailable: the model could not be asked. Never for a reply that cannot be read.
            ModelRejected: the model refuses.
            EmptyReply: no reply can be read, and there is no default.
        """
        prompt = self.prompt_for(values, sample=sample)
        settings: dict[str, Any] = {"max_tokens": max_tokens, "temperature": temperature}
        original, reason = prompt, ""
        for may_repair in (bool(self.repair), False):
            try:
                generation = generate_reply(
                    llm, prompt, on_text, schema=self.parser.schema, title=self.title, **settings
                )
            except ThoughtCut as error:
                reply, reason, may_repair = "", str(error).rstrip("."), False
            except EmptyReply as error:
                reply, reason = "", str(error).rstrip(".")
            except BudgetSpent as error:
                # Only the second try can be done without; and a loop has to know that it ends.
                if prompt is original or self.default is None or error.in_loop:
                    raise
                reason += "; the budget allows no second try"
                break
            else:
                reply = generation.text
                try:
                    text = prepend_thought(reply, generation.thoughts) if self.parser.reads_thoughts else reply
                    value = self.parser.parse(text)
                except ValueError as error:
                    reason = str(error)
                else:
                    if prompt is not original:
                        note(f"A reply to {self.title} could not be read; the second could.", is_counted=True)
                    return value
            if on_text is not None:
                retract()
            if not may_repair:
                break
            problem = escape_marks(reason) if reply else "it is empty"  # a reason may quote the reply
            form = f", written: {self.parser.form}" if self.parser.form else ""
            request = template.read_translated(self.repair, values, self.language).fill(
                {"reason": Setting(f"{problem}{form}")}
            )
            prompt = append_turn(prompt, strip_thoughts(reply), request)
        if self.default is None:
            raise EmptyReply(f"{llm.name} replied to {self.title} what cannot be read: {reason}. It has no default.")
        degrade(f"The reply to {self.title} could not be read ({reason}); its default {self.default!r} holds.")
        return self.parser.parse(self.default)


def append_turn(prompt: Prompt, reply: str, request: Sequence[Message]) -> Prompt:
    """Return the prompt with its reply and the next message.

    Many servers refuse an empty message, and two of the same role in turn: after an empty reply, the next message is
    joined to the last message of the prompt.
    """
    if reply:
        prompt = continue_prompt(prompt, reply)
        return prompt.but(messages=(*prompt.messages, *request))
    *earlier, last = prompt.messages
    text = "\n\n".join(message.content for message in (last, *request))
    return prompt.but(messages=(*earlier, last.but(content=text)))


def continue_prompt(prompt: Prompt, *parts: str) -> Prompt:
    """Return the prompt with the beginning of the reply, whose end is asked for.

    Args:
        parts: what follows each other; marks are left in a `Setting` only.

    >>> from spolia.types import Message
    >>> asked = Prompt((Message("user", "Who employed Olsen?"),))
    >>> continue_prompt(asked, Setting("[Relevant]"), "Nokia [Relevant]").messages[-1].content
    '[Relevant]Nokia ⟦Relevant]'
    """
    text = "".join(part if isinstance(part, Setting) else escape_marks(part) for part in parts)
    return prompt.but(messages=(*prompt.messages, Message("assistant", text)))


@dataclass(frozen=True)
class Brief(Value):
    """Messages for a model, and the case that they ask about.

    Args:
        places: by place of the prompt file: a text, or several texts.
        sample: number of the random draw.
    """

    places: tuple[tuple[str, str | tuple[str, ...]], ...]
    sample: int = 0

    @classmethod
    def from_texts(cls, sample: int = 0, **places: str | tuple[str, ...]) -> Self:
        """Make the brief with these texts."""
        return cls(tuple(places.items()), sample)


@dataclass(frozen=True)
class Ask(Operator[Brief, Any]):
    """Ask a language model in one role: what the role's parser reads in the reply.

    It is the one way in which operators ask: a run caches each question, counts its calls, streams the reply as it
    comes, and keeps texts of documents in their place. The reply is final where the operator gives it out as its own
    (`Operator.tail`).

    Args:
        llm: the language model.
        role: the prompt file, the reader of its reply, what holds when it cannot be read.
        max_tokens: longest reply.
        temperature: 0 for the most probable reply; above, samples of a brief differ.

    Raises:
        ModelError: when it runs, for a prompt file that cannot be read or has a place that the brief does not fill.
        ModelUnavailable: when the server cannot be reached.
        ModelRejected: when the model refuses.

    >>> from spolia.models import Lines, ScriptedModel
    >>> parts = Role("Cut this question into simpler ones, one a line.\\n<question>{{question}}</question>", Lines())
    >>> Ask(ScriptedModel(("Who is Olsen?\\nWho employed him?",)), parts).reply(question="Who employed Olsen?")
    ('Who is Olsen?', 'Who employed him?')
    """

    llm: LanguageModel
    role: Role[Any]
    max_tokens: int = 1024
    temperature: float = 0.0

    version: ClassVar[int] = 2  # 2: marks in documents are told from those of the prompt
    cached: ClassVar[bool] = True

    def apply(self, value: Brief, /) -> Any:
        return self.role.ask(
            self.llm,
            dict(value.places),
            sample=self._sample(value),
            max_tokens=self.max_tokens,
            temperature=self.temperature,
            on_text=emit if is_streamed() else None,
        )

    def reply(self, sample: int = 0, **places: str | tuple[str, ...]) -> Any:
        """Return the model's reply to the prompt with these texts at its places.

        Args:
            sample: number of the random draw; counts above temperature 0.
        """
        return self(Brief.from_texts(sample, **places))

    def reads(self, value: Brief, /) -> Prompt:
        return self.role.prompt_for(dict(value.places), sample=self._sample(value))

    def _sample(self, value: Brief) -> int:
        return value.sample if self.temperature > 0 else 0  # at 0 all samples are one reply, which is asked for once

    def calls(self, rows: int | None = None, /) -> int | None:
        return self.role.calls


def replies(ask: Operator[Brief, Any], briefs: Sequence[Brief]) -> list[Any]:
    """Get the model's reply to each brief, all at the same time; a `Failure` where the call failed.

    That is recorded as `passed_over` does.
    """
    return record_failures(ask.batch(briefs), "A question to the model failed and is skipped")


def record_failures(
    results: Sequence[T | Failure], message: str, *, raise_if_all_failed: bool = False
) -> list[T | Failure]:
    """Return the results of asking a model several times, and record the failures: a result made from the others is
    degraded.

    An error that is not the model's is a mistake of the caller or a spent budget, and is raised.

    Args:
        message: what a failure means.
        raise_if_all_failed: raise the first failure if all failed.
    """
    failures = [result for result in results if isinstance(result, Failure)]
    for failure in failures:
        if not isinstance(failure.error, (ModelUnavailable, ModelRejected)) or (
            raise_if_all_failed and len(failures) == len(results)
        ):
            raise failure.raised()
        degrade(f"{message}: {failure.message}", partly=len(failures) < len(results))
    return list(results)
