"""Which passages of a ranking a prompt shows, and how."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from spolia.core.operator import Operator
from spolia.core.run_context import emit, note
from spolia.core.type_compatibility import refuse_counts
from spolia.errors import WiringError
from spolia.models.marks import escape_citations
from spolia.models.prompting.role import generate_answer
from spolia.models.prompting.template import Template
from spolia.models.protocols import LanguageModel
from spolia.types import Citation, Generation, Hit, Node, Prompt, Ranking


def fit_passages(ranking: Ranking, passages: int, characters: int) -> Ranking:
    """Return the best passages that fit together; the first one in any case.

    >>> from spolia.types import Hit, Query
    >>> found = Ranking(Query("?"), tuple(Hit(Node(text, text), 1.0) for text in ("aaaa", "bbbb", "cccc")))
    >>> [node.text for node in fit_passages(found, 5, 9).nodes]
    ['aaaa', 'bbbb']
    """
    best = ranking.cut(passages)
    room = characters
    for number, node in enumerate(best.nodes):
        room -= len(node.shown_text)
        if room < 0:
            return best.cut(max(1, number))
    return best


def number_passages(ranking: Ranking, characters: int, skip: int = 0) -> tuple[str, ...]:
    """Format the passages of a ranking, each with its number and place, cut to the longest that a prompt may hold.

    Args:
        skip: number of passages to leave out at the beginning; the others keep their numbers.
    """
    return tuple(
        _format_passage(number, node, characters) for number, node in enumerate(ranking.nodes[skip:], skip + 1)
    )


def _format_passage(number: int, node: Node, characters: int) -> str:
    text = node.shown_text
    if len(text) > characters:
        note(
            f"Passage {number} has {len(text)} characters; the prompt holds the first {characters}. "
            "Write a larger max_characters, or split the documents into smaller pieces."
        )
        text = text[:characters]
    place = " ".join(cite_passage(number, node).place.split())  # a file name may hold line breaks
    place, text = escape_citations(place), escape_citations(text)  # else a passage could begin another one
    return f"[{number}] {place}\n{text}" if place else f"[{number}] {text}"


def asks_for_marks(prompt: Prompt) -> bool:
    """Return whether a prompt shows how to cite, as in `Paris [1]`; the numbers of the passages themselves do not
    count.

    >>> from spolia.types import Message
    >>> shown = '<passages number="1">\\n[1] a.txt\\nIt is Paris.\\n</passages> Which city?'
    >>> prompts = [Prompt((Message("user", said + shown),)) for said in ("Write it like this: Paris [1]", "Write it.")]
    >>> [asks_for_marks(prompt) for prompt in prompts]
    [True, False]
    """
    return _MARK.search(_PASSAGES.sub("", prompt.text)) is not None


_PASSAGES = re.compile(r"<passages number=.*?</passages>", re.DOTALL)
_MARK = re.compile(r"[\[［【](?:\d+|n|number)[\]］】]", re.IGNORECASE)


def cite_passage(number: int, node: Node) -> Citation:
    """Return the citation of a whole passage."""
    return Citation(str(number), node.id, node.document, node.uri, node.text, node.span)


def citations(numbers: Iterable[int], hits: Sequence[Hit]) -> tuple[Citation, ...]:
    """Cite the passages with these numbers, from 1: each smaller node found in one, else all of it."""
    numbered_hits = ((number, hits[number - 1]) for number in numbers)
    return tuple(cite_passage(number, node) for number, hit in numbered_hits for node in hit.found or (hit.node,))


@dataclass(frozen=True)
class FString(Operator[Ranking, Prompt]):
    """Put the passages and the question where a text says, best passage first, each numbered between tags.

    A text with lines `[system]`, `[user]`, `[assistant]` is a chat of as many messages, else it is one user's message
    (`spolia.models.prompting.template`). Braces in passages or questions mean nothing. Passages for which there is no
    room are left out, the last first.

    Args:
        template: with the places `{{passages}}` and `{{question}}`, which a system's message may not have.
        max_passages: how many of the best passages are shown.
        max_characters: of all passages together.

    Raises:
        WiringError: the text lacks a place, or has an unknown one.
        ModelError: when it runs, for a place in a system's message.

    Source: `fstring` and `chat_fstring` in Kim et al., "AutoRAG", 2024 (arXiv 2410.20878).

    >>> from spolia.types import Hit, Node, Query
    >>> found = Ranking(Query("Why {x}?"), (Hit(Node("n", "For {y}."), 1.0),))
    >>> FString("Read. {{passages}} Then say: {{question}}")(found).text
    'Read. <passages number="1">\\n[1] For {y}.\\n</passages> Then say: Why {x}?'
    """

    template: str = "{{passages}}\n\n<question>{{question}}</question>"
    max_passages: int = 5
    max_characters: int = 20_000

    version: ClassVar[int] = 2  # 2: marks in passages are told from those of the prompt

    def __post_init__(self) -> None:
        refuse_counts(self, "max_passages", "max_characters")
        required, places = {"passages", "question"}, Template.from_text(self.template).places
        if differing := sorted(required ^ places):
            problem = "lacks" if differing[0] in required else "has the unknown"
            raise WiringError(
                f"The template of {type(self).__name__} {problem} {{{{{differing[0]}}}}}. Write {{{{passages}}}} and "
                "{{question}} where they are to stand, and no other."
            )

    def apply(self, value: Ranking, /) -> Prompt:
        ranking = fit_passages(value, self.max_passages, self.max_characters)
        passages = number_passages(ranking, self.max_characters)
        parts = {"passages": self.arrange(passages), "question": value.query.question}
        return Prompt(Template.from_text(self.template).fill(parts), value.query.sample)

    def arrange(self, passages: Sequence[str]) -> Sequence[str]:
        """Return the passages in the order in which the prompt shows them."""
        return passages


@dataclass(frozen=True)
class LongContextReorder(FString):
    """`FString` with the best passage a second time after all others, since models overlook the middle.

    Its number is the same both times, so that citations mean the same.

    Args:
        template: with the places `{{passages}}` and `{{question}}`, which a system's message may not have.
        max_passages: how many of the best passages are shown; one that comes twice counts once.
        max_characters: of all passages together, the one that comes twice counted once.

    Source: `long_context_reorder` in Kim et al., "AutoRAG", 2024; Liu et al., "Lost in the middle: How language models
    use long contexts", TACL 2024.

    >>> from spolia.types import Hit, Node, Query, Ranking
    >>> found = Ranking(Query("Why?"), tuple(Hit(Node(text, text), 1.0) for text in ("Best.", "Next.")))
    >>> LongContextReorder("{{passages}} {{question}}")(found).text.count("[1] Best.")
    2
    """

    def arrange(self, passages: Sequence[str]) -> Sequence[str]:
        return [*passages, *passages[:1]] if len(passages) > 1 else passages


@dataclass(frozen=True)
class Generate(Operator[Prompt, Generation]):
    """Get the reply of a language model to a prompt; it streams. `Reader` also resolves what the reply cites.

    Args:
        llm: the language model.
        max_tokens: longest reply; one that is cut says `finish_reason="length"`.
        temperature: 0 for the most probable reply; above, samples of a prompt differ.
        stop: the reply ends before the first of these.
        logprobs: also the log-probability of every token, which needs a model with the capability `logprobs`.

    Raises:
        ModelUnavailable: when the server cannot be reached.
        ModelRejected: when the model refuses, replies with nothing, or states no log-probabilities.

    >>> from spolia import Message, ScriptedModel
    >>> Generate(ScriptedModel(("Paris.",)))(Prompt((Message("user", "The capital?"),))).text
    'Paris.'
    """

    llm: LanguageModel
    max_tokens: int = 512
    temperature: float = 0.0
    stop: tuple[str, ...] = ()
    logprobs: bool = False

    version: ClassVar[int] = 3  # 3: a thought without a beginning is left out too
    cached: ClassVar[bool] = True

    def __post_init__(self) -> None:
        refuse_counts(self, "max_tokens")

    def apply(self, value: Prompt, /) -> Generation:
        options: dict[str, Any] = {"temperature": self.temperature, "stop": self.stop, "logprobs": self.logprobs}
        return generate_answer(self.llm, value, emit, max_tokens=self.max_tokens, **options)

    def reads(self, value: Prompt, /) -> object:
        # at temperature 0 all samples are equal: one call serves them all
        return value if self.temperature > 0 else value.messages
