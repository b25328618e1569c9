"""What running a flow leaves behind: verdicts, failures, what it cost, the states of a loop."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from spolia.types.value import Value, kept


@dataclass(frozen=True)
class Verdict(Value):
    """What a judge says of a state: whether to stop, and why."""

    stop: bool
    reason: str = ""


@dataclass(frozen=True)
class Failure(Value):
    """A row that could not be computed.

    Args:
        kind: name of the error's class.
        message: the error's message.
        step: the operator in which it was raised.
        error: the exception itself.
    """

    kind: str
    message: str
    step: str = ""
    error: Exception | None = field(default=None, compare=False, repr=False)

    @classmethod
    def of(cls, error: Exception, step: str = "") -> Failure:
        """The failure that an exception stands for."""
        return cls(type(error).__name__, str(error), step, error)

    def raised(self) -> Exception:
        """The exception, to be raised again."""
        return self.error if self.error is not None else RuntimeError(f"{self.step}: {self.kind}: {self.message}")


@dataclass(frozen=True)
class Usage(Value):
    """What a step cost.

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

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.calls + other.calls,
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.embedded + other.embedded,
            self.cost_usd + other.cost_usd,
        )

    def __sub__(self, other: Usage) -> Usage:
        return Usage(
            self.calls - other.calls,
            self.input_tokens - other.input_tokens,
            self.output_tokens - other.output_tokens,
            self.embedded - other.embedded,
            self.cost_usd - other.cost_usd,
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

    @kept
    def identity(self) -> bytes:
        """Content hash without `stop` and `sample`: what a set of visited states compares."""
        return replace(self, stop="", sample=0).digest
