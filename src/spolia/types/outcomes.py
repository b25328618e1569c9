"""Outcomes of a flow: verdicts, failures, costs, the states of a loop."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from numbers import Real
from typing import TypeVar
from unicodedata import normalize
from warnings import warn

from spolia.errors import QueryError, WiringError, text_of
from spolia.types.rankings import Query
from spolia.types.value import Value, lazy_property, refuse_type

T = TypeVar("T")


@dataclass(frozen=True)
class Verdict(Value):
    """Judgement of a state: whether to stop, and why."""

    stop: bool
    reason: str = ""

    def __post_init__(self) -> None:
        if type(self.stop) is not bool:
            if type(self.stop).__name__ not in ("bool", "bool_"):  # numpy's, of a comparison
                refuse_type(self, "stop", "True or False")
            object.__setattr__(self, "stop", bool(self.stop))
        if not isinstance(self.reason, str):
            refuse_type(self, "reason", "a text")


@dataclass(frozen=True)
class Failure(Value):
    """Row that could not be computed.

    Args:
        kind: name of the error's class.
        step: the operator in which it was raised.
    """

    kind: str
    message: str
    step: str = ""
    error: Exception | None = field(default=None, compare=False, repr=False)

    @classmethod
    def from_error(cls, error: Exception, step: str = "") -> "Failure":
        """Return the failure that an exception stands for."""
        message, notes = text_of(error), getattr(error, "__notes__", ())
        # Notes are sentences of their own, and messages of other libraries often lack the full stop.
        message += "." if notes and message[-1:].isalnum() else ""
        return cls(type(error).__name__, " ".join((message, *notes)), step, error)

    def raised(self) -> Exception:
        """Return the exception, to be raised again."""
        return self.error if self.error is not None else RuntimeError(f"{self.step}: {self.kind}: {self.message}")


def require_successes(results: Iterable[T | Failure]) -> list[T]:
    """Return the results of a batch of which all are needed; raise the first failure again."""
    values: list[T] = []
    for result in results:
        if isinstance(result, Failure):
            raise result.raised()
        values.append(result)
    return values


def format_dollars(amount: float) -> str:
    """Write an amount with four significant digits, never in powers of ten.

    >>> format_dollars(0.00001), format_dollars(0.12345), format_dollars(1_234_567)
    ('0.00001', '0.1235', '1234567')
    """
    digits, mark, power = f"{amount:.4g}".partition("e")
    # Only zeros behind the point are cut: those of 1200000 belong to the number.
    return f"{amount:.{max(0, 3 - int(power))}f}".rstrip("0" * (int(power) < 0)) if mark else digits


@dataclass(frozen=True)
class Usage(Value):
    """Cost of a step.

    Args:
        calls: requests to language models.
        input_tokens: tokens sent to them.
        output_tokens: tokens that they generated.
        embedded: texts that were embedded.
        cost_usd: price in US dollars, where it is known.

    >>> Usage(calls=1) + Usage(calls=2, output_tokens=5)
    Usage(calls=3, input_tokens=0, output_tokens=5, embedded=0, cost_usd=0.0)
    """

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    embedded: int = 0
    cost_usd: float = 0.0

    def __post_init__(self) -> None:
        try:
            # one sum, since every charge makes a Usage
            self.calls + self.input_tokens + self.output_tokens + self.embedded + self.cost_usd + 0
        except TypeError:
            wrong = next(name for name, number in vars(self).items() if not isinstance(number, Real))
            refuse_type(self, wrong, "a number, as in Usage(calls=1)")

    def __add__(self, usage: "Usage") -> "Usage":
        return Usage(
            self.calls + usage.calls,
            self.input_tokens + usage.input_tokens,
            self.output_tokens + usage.output_tokens,
            self.embedded + usage.embedded,
            self.cost_usd + usage.cost_usd,
        )

    def __sub__(self, usage: "Usage") -> "Usage":
        return Usage(
            self.calls - usage.calls,
            self.input_tokens - usage.input_tokens,
            self.output_tokens - usage.output_tokens,
            self.embedded - usage.embedded,
            self.cost_usd - usage.cost_usd,
        )


@dataclass(frozen=True)
class State(Value):
    """Base of the states of adaptive flows.

    Args:
        stop: why the flow ended; empty while it runs.
        sample: number of the random draw.
    """

    stop: str = field(default="", kw_only=True)
    sample: int = field(default=0, kw_only=True)

    @lazy_property
    def identity(self) -> bytes:
        """Return the content hash without `stop` and `sample`: what a set of visited states compares."""
        return replace(self, stop="", sample=0).digest


# three digits at most: `#1984` in a question is no step
_ANSWER_PLACE = re.compile(r"#(\d{1,3})(?!\d)")


@dataclass(frozen=True)
class ArmScores(Value):
    """Scores of how well each arm of a `Route` fits, in the order of the arms; a higher score is better."""

    scores: tuple[tuple[str, float], ...]

    @classmethod
    def from_scores(cls, scores: Mapping[str, float]) -> "ArmScores":
        return cls(tuple((arm, float(score)) for arm, score in scores.items()))

    @property
    def by_arm(self) -> dict[str, float]:
        return dict(self.scores)


@dataclass(frozen=True)
class Plan(Value):
    """Question, and the steps by which it is answered; `#1` in a step is the answer of the first one.

    Args:
        query: the question.
        steps: sub-questions, each after the ones it needs; none if the question needs no steps.

    Raises:
        QueryError: a step needs one that is not before it.

    >>> plan = Plan(Query("Where is the employer of Olsen?"), ("Who employs Olsen?", "Where is #1?"))
    >>> [plan.needed_steps(step) for step in plan.steps], plan.fill_step("Where is #1?", {1: "Nokia"})
    ([(), (1,)], 'Where is Nokia?')
    """

    query: Query
    steps: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.query, Query):
            refuse_type(self, "query", "Query('…')")
        if isinstance(self.steps, str) or not all(isinstance(step, str) for step in self.steps):
            refuse_type(self, "steps", "a tuple of texts")
        for number, step in enumerate(self.steps, 1):
            if wrong := [needed for needed in self.needed_steps(step) if not 1 <= needed < number]:
                raise QueryError(
                    f"Step {number} needs #{wrong[0]}, which is not before it: {step!r:.80}. Write steps in an order "
                    "in which they can be taken."
                )

    def needed_steps(self, step: str) -> tuple[int, ...]:
        """Return numbers of the steps whose answers a step has places for."""
        return tuple(dict.fromkeys(int(digits) for digits in _ANSWER_PLACE.findall(step)))

    def fill_step(self, step: str, answers: Mapping[int, str]) -> str:
        """Return the step with the answers in their places; they are never looked at again."""
        return _ANSWER_PLACE.sub(lambda match: answers.get(int(match[1]), match[0]), step)

    @lazy_property
    def levels(self) -> tuple[tuple[int, ...], ...]:
        """Return numbers of steps that can be taken together, one level after the other."""
        level: dict[int, int] = {}
        for number, step in enumerate(self.steps, 1):
            # One pass is enough: a step needs earlier ones only, which the constructor has checked.
            level[number] = 1 + max((level[needed] for needed in self.needed_steps(step)), default=-1)
        return tuple(
            tuple(number for number in level if level[number] == depth)
            for depth in range(max(level.values(), default=-1) + 1)
        )


@dataclass(frozen=True)
class ChainForm(Value):
    """Form in which a prompt writes a chain.

    Args:
        question: its first line, with `{question}`; empty where the prompt has a place for the question itself.
        pair: with `{number}`, `{question}` and `{answer}`.
        empty: what stands for no pair.
    """

    question: str = "Question: {question}"
    pair: str = "Q: {question}\nA: {answer}"
    empty: str = ""


CHAIN_FORMS: Mapping[str, ChainForm] = {
    "plain": ChainForm(),
    "corag-8b": ChainForm(
        "",
        "Intermediate query {number}: {question}\nIntermediate answer {number}: {answer}",
        "Nothing yet",
    ),
}
"""Ours, and the one that the published model of CoRAG was trained with (Wang et al. 2025)."""


@dataclass(frozen=True)
class Chain(State):
    """Question, and the sub-questions asked for it with their results, oldest first."""

    query: Query
    pairs: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.query, Query):
            refuse_type(self, "query", "Query('...')")

    @lazy_property
    def identity(self) -> bytes:
        """Return the hash of every `State`, with sub-questions as one that differ in case, blanks, the mark at their
        end or the form of Unicode (NFC, NFD).

        >>> first, second = (Chain(Query("What?"), ((text, "Olsen."),)) for text in ("Who is it?", "who is  it"))
        >>> first.identity == second.identity
        True
        """
        pairs = tuple(
            (" ".join(normalize("NFC", question.casefold()).split()).rstrip(" ?？!！.。"), answer)
            for question, answer in self.pairs
        )
        return replace(self, stop="", sample=0, pairs=pairs).digest

    def format_text(self, characters: int, form: str = "plain") -> str:
        """Write the question and its newest pairs, as many as there is room for, in the order in which they were asked.

        Args:
            form: a name in `CHAIN_FORMS`.

        >>> chain = Chain(Query("Where?"), (("Who is it?", "Olsen."), ("Whose?", "Nokia's.")))
        >>> print(chain.format_text(40))
        Question: Where?
        Q: Whose?
        A: Nokia's.
        >>> print(chain.format_text(90, "corag-8b"))
        Intermediate query 2: Whose?
        Intermediate answer 2: Nokia's.
        """
        if (chain_form := CHAIN_FORMS.get(form)) is None:
            raise WiringError(f"No chain is written as {form!r}. Write one of {', '.join(CHAIN_FORMS)}.")
        lines = [line for line in [chain_form.question.format(question=self.query.question)] if line]
        room = characters - sum(map(len, lines))
        newest: list[str] = []
        for number, (question, answer) in reversed(list(enumerate(self.pairs, 1))):
            text = chain_form.pair.format(number=number, question=question, answer=answer)
            room -= len(text) + 1
            if room < 0:
                break
            newest.append(text)
        return "\n".join(lines + (newest[::-1] or [chain_form.empty])).rstrip("\n")

    def written(self, characters: int, form: str = "plain") -> str:
        """Write the question and its pairs, by the method's former name."""
        text = "Chain.written is format_text now. The former name goes with the next minor version."
        warn(text, DeprecationWarning, stacklevel=2)
        return self.format_text(characters, form)
