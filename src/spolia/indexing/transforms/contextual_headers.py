"""Contextual retrieval: pieces that say where in their document they stand."""

from dataclasses import dataclass

from spolia.core.call_bounds import times, total
from spolia.core.operator import Operator
from spolia.core.run_context import note
from spolia.core.type_compatibility import refuse_numbers
from spolia.indexing.transforms.llm_transform import CHARACTERS
from spolia.models.parsers import NOTHING, Text, says_nothing
from spolia.models.prompting.role import Ask, Role
from spolia.models.prompting.template import stretch
from spolia.models.protocols import LanguageModel
from spolia.stores.definition import Part, Piece, Pieces
from spolia.types import Failure, Value

ROLE: Role[str] = Role("spolia:indexing/prompts/contextual_header.txt", Text(), default=NOTHING)


@dataclass(frozen=True)
class HeaderPassage(Value):
    """Passage, and the stretch of its document around it."""

    text: str
    document: str


@dataclass(frozen=True)
class Situate(Operator[HeaderPassage, str]):
    """Sentence or two on where a passage is in its document; may be empty.

    The prompt has the document first, so that a server that keeps prefixes reads it once for many passages.

    Args:
        llm: the language model.
        role: prompt, with the places `{{document}}` and `{{passage}}`, reader and default.
        max_tokens: longest reply.

    >>> from spolia.models.prompting.stand_in_models import ScriptedModel
    >>> passage = HeaderPassage("They rise.", "The harbour. Tides: They rise.")
    >>> Situate(ScriptedModel(("Of the harbour, on tides.",)))(passage)
    'Of the harbour, on tides.'
    """

    llm: LanguageModel
    role: Role[str] = ROLE
    max_tokens: int = 256

    def apply(self, value: HeaderPassage, /) -> str:
        self.role.refuse_without("document", "passage")
        reply = Ask(self.llm, self.role, self.max_tokens).reply(document=value.document, passage=value.text)
        return "" if says_nothing(reply) else reply

    def calls(self, rows: int | None = None, /) -> int | None:
        return self.role.calls


@dataclass(frozen=True)
class ContextualHeaders(Operator[Part, Pieces]):
    """Pieces of another transform, each with a sentence or two that situate it within the whole document.

    The sentences become part of the context: searched and embedded, not shown as quote. Each is kept on its own, so
    that what was interrupted goes on where it was. A long document is shortened at both ends, to the stretch around
    the piece.

    Args:
        llm: the language model.
        splitter: makes the pieces.
        document_characters: of the document that are shown with each piece at most.
        role: as `Situate` has it.
        max_tokens: longest reply.

    Source: Anthropic, "Introducing Contextual Retrieval", 2024.

    >>> from spolia import Document, Node, ScriptedModel
    >>> from spolia.indexing.transforms.function import transform
    >>> @transform
    ... def paragraphs(text):
    ...     return text.split("\\n\\n")
    >>> document = Document("d", "The tide rises.\\n\\nIt falls after six hours.")
    >>> headers = ContextualHeaders(ScriptedModel((("<passage>It", "About the tide."), "none")), paragraphs)
    >>> [piece.context for piece in headers(Part(Node("d", document.text), document))]
    ['', 'About the tide.']
    """

    llm: LanguageModel
    splitter: Operator[Part, Pieces]
    document_characters: int = CHARACTERS
    role: Role[str] = ROLE
    max_tokens: int = 256

    def __post_init__(self) -> None:
        self.splitter.gives(Part)
        refuse_numbers(self, "a number of at least 1", "document_characters", "max_tokens")

    def apply(self, value: Part, /) -> Pieces:
        pieces = self.splitter(value)
        document_text = value.document.text
        if pieces and len(document_text) > self.document_characters:
            note(
                f"{value.document.uri or value.document.id} has {len(document_text)} characters; the model is shown "
                f"{self.document_characters} around each piece. Write a larger document_characters to show more."
            )
        headers = self._situate.batch([self._make_passage(piece, value) for piece in pieces])
        return tuple(_add_header(header, piece) for header, piece in zip(headers, pieces, strict=True))

    def reads(self, value: Part, /) -> object:
        return self.splitter.reads(value), value.document.text

    def calls(self, rows: int | None = None, /) -> int | None:
        return total([self.splitter.calls(rows), times(self.splitter.fanout(rows), self._situate.calls())])

    def fanout(self, rows: int | None = None, /) -> int | None:
        return self.splitter.fanout(rows)

    @property
    def _situate(self) -> Situate:
        return Situate(self.llm, self.role, self.max_tokens)

    def _make_passage(self, piece: Piece, part: Part) -> HeaderPassage:
        position = (part.offset or 0) + (piece.start or 0) + len(piece.text) // 2
        return HeaderPassage(piece.text, stretch(part.document.text, position, self.document_characters))


def _add_header(header: str | Failure, piece: Piece) -> Piece:
    """Put a header above the piece's own context."""
    if isinstance(header, Failure):
        raise header.raised()
    return piece.but(context="\n".join(filter(None, (header, piece.context))))
