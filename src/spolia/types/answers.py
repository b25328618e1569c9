"""Prompts and replies of language models, and answers with their sources."""

from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from spolia.types import notebook
from spolia.types.documents import Span, place_of
from spolia.types.rankings import Message, Ranking
from spolia.types.value import Value, added_field, refuse_type


@dataclass(frozen=True)
class Prompt(Value):
    """Messages for a language model. `sample` numbers the random draw; `role` names the prompt file, if any."""

    messages: tuple[Message, ...]
    sample: int = 0
    role: str = field(default="", compare=False)

    @property
    def text(self) -> str:
        return "\n\n".join(message.content for message in self.messages)


@dataclass(frozen=True)
class Token(Value):
    """A generated token and its natural log-probability."""

    text: str
    logprob: float


@dataclass(frozen=True)
class Generation(Value):
    """The reply of a language model.

    Args:
        text: the reply.
        finish_reason: `stop`, or `length` when the model was cut off.
        tokens: with log-probabilities, when they were asked for.
        thoughts: what the model thought before, where the server sends it apart from the reply.
    """

    text: str
    finish_reason: str = "stop"
    tokens: tuple[Token, ...] = ()
    thoughts: str = added_field("")


@dataclass(frozen=True)
class Citation(Value):
    """Passage behind a statement.

    Args:
        marker: how the answer refers to it, for example `1` for `[1]`.
        node: id of the node.
        document: id of the document.
        uri: where the document came from.
        quote: the exact text of the document at `span`.
        span: of the quote in the document.
    """

    marker: str
    node: str
    document: str
    uri: str
    quote: str
    span: Span | None = None

    @property
    def place(self) -> str:
        """Return file and time, page or lines, for people.

        >>> Citation("1", "n", "d", "a.pdf", "...", Span(0, 3, pages=(2, 3))).place
        'a.pdf, pages 2-3'
        """
        return place_of(self.uri, self.span)

    def json(self) -> dict[str, Any]:
        """Return plain data."""
        data = {name: getattr(self, name) for name in ("marker", "place", "uri", "document", "node", "quote")}
        return data | {"span": None if self.span is None else self.span.json()}


CitationFault: TypeAlias = Literal["uncited", "unknown"]


@dataclass(frozen=True)
class Answer(Value):
    """Reply with its sources.

    Args:
        text: the reply; for an abstention, the sentence that says so.
        citations: the passages that the text refers to.
        stop_reason: `answered`, `abstained`, or why the loop before it ended: `sufficient` or another reason of a
            judge, `cap`, `budget`, `forced`, `error`.
        evidence: everything that was shown to the reader.
        faults: what is out of order with the citations of an answer that a model wrote: `uncited`, it cites none of the
            passages that were shown, although its prompt asks for that; `unknown`, it cited a number that no passage
            has, which was taken out.
    """

    text: str
    citations: tuple[Citation, ...] = ()
    stop_reason: str = "answered"
    evidence: Ranking | None = field(default=None, compare=False, repr=False)
    faults: tuple[CitationFault, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.text, str):
            refuse_type(self, "text", "a text")

    @property
    def abstained(self) -> bool:
        return self.stop_reason == "abstained"

    def json(self) -> dict[str, Any]:
        """Return plain data, as `spolia ask --json` prints it.

        >>> Answer("In mines.").json()
        {'answer': 'In mines.', 'stop_reason': 'answered', 'faults': [], 'citations': []}
        """
        return {
            "answer": self.text,
            "stop_reason": self.stop_reason,
            "faults": list(self.faults),
            "citations": [citation.json() for citation in self.citations],
        }

    def __str__(self) -> str:
        """Return the text, and the place of each citation.

        >>> print(Answer("In mines. [1]", (Citation("1", "n", "d", "salt.txt", "Salt is dug in mines."),)))
        In mines. [1]
        [1] salt.txt
        """
        return "\n".join((self.text, *(f"[{citation.marker}] {citation.place}" for citation in self.citations)))

    def _repr_html_(self) -> str:
        parts = notebook.render_paragraph(self.text)
        if self.stop_reason != "answered" or self.faults:
            parts += notebook.render_paragraph(", ".join((self.stop_reason, *self.faults)))
        rows = ((f"[{citation.marker}]", citation.place, citation.quote) for citation in self.citations)
        return parts + (notebook.render_table(("", "place", "quote"), rows) if self.citations else "")
