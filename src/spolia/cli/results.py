"""Rankings and answers as they are printed: places, quotes, what is cited."""

import sys
from collections.abc import Iterable, Iterator
from typing import Any

from spolia.cli.screen import Renderable, Screen, indented, one_line, text, visible
from spolia.core.markdown import MarkdownStream, disarm
from spolia.core.operator import Operator
from spolia.core.run_context import Done, Emitted, Retracted
from spolia.run.lane import Lane, numbered_step_names
from spolia.stores.backends.rows import Unmade
from spolia.stores.corpus import Corpus
from spolia.types import Answer, Query, Ranking

SHOWN_CHARACTERS = 300


def format_ranking(ranking: Ranking) -> Iterator[Renderable]:
    """Yield the hits, numbered, each with its place, its score and the beginning of its text."""
    for number, hit in enumerate(ranking.hits, start=1):
        head = text().append(f"{number:>3}  ", "bold cyan").append(one_line(hit.node.place), "bold")
        yield head.append(f"  {hit.score:.3f}", "dim")
        if hit.node.context:
            yield indented(one_line(hit.node.context, 150), 5, "dim")
        yield indented(one_line(hit.node.text, SHOWN_CHARACTERS), 5)


def format_citations(answer: Answer) -> Iterator[Renderable]:
    """Yield the place and the passage of each citation of an answer."""
    for citation in answer.citations:
        yield text().append(f"\n[{visible(citation.marker)}] ", "bold cyan").append(one_line(citation.place), "bold")
        yield indented(f"“{one_line(citation.quote)}”", 4, "dim")


def print_degraded(screen: Screen, lane: Lane, flow: Operator[Any, Any]) -> None:
    """Say why the result is degraded, without repeating what the answer says itself."""
    names = numbered_step_names(flow)
    reasons = (f"{names[id(op)]}: {one_line(reason, 300)}" for op, reason, degraded in lane.reasons if degraded)
    for line in dict.fromkeys(reasons):
        screen.say(line, "yellow")


def print_answer(
    screen: Screen, flow: Operator[Query, Answer], query: Query, *, streams: bool, live_markdown: bool
) -> Answer:
    """Run the flow and print its answer, whose Markdown is made inert: it may go on to a file or a viewer.

    Args:
        streams: print a language model's text as it comes, if there is a terminal.
        live_markdown: leave Markdown as it is.
    """
    # A file or a pipe gets the whole answer, since text can be taken back.
    if screen.json or not (streams and sys.stdout.isatty()):
        answer = flow(query)
        answer = answer if live_markdown else answer.but(text=disarm(answer.text))
        screen.show(_styled(answer))
        return answer
    printed_text, markdown = "", None if live_markdown else MarkdownStream()
    for event in flow.stream(query):
        if isinstance(event, Emitted) and event.final:
            printed_text += event.text
            _write(event.text if markdown is None else markdown.feed(event.text))
        elif isinstance(event, Retracted):
            printed_text = printed_text[: -event.characters]
            if markdown is not None:
                markdown.retract(event.characters)
            screen.say("\n(the last part is taken back)")
        elif isinstance(event, Done):
            answer = event.value
    _write("\n" if markdown is None else f"{markdown.end()}\n")
    is_shown = printed_text == answer.text  # both as the flow gave them, before they are made inert
    answer = answer if live_markdown else answer.but(text=disarm(answer.text))
    if not is_shown:
        screen.show(_styled(answer))
    return answer


def _write(text: str) -> None:
    sys.stdout.write(visible(text))  # control characters of a model must not reach the terminal
    sys.stdout.flush()


def _styled(answer: Answer) -> Renderable:
    return text(visible(answer.text), "yellow" if answer.abstained else "")


def unmade_data(unmade: Iterable[Unmade]) -> list[dict[str, str]]:
    """List as plain data which groups lack nodes of which documents."""
    return [{"uri": lack.uri, "group": lack.group, "reason": lack.reason} for lack in unmade]


SHOWN = 5


class FirstUses:
    """Groups that a command builds while it searches: numbers of nodes by group, and what these groups lack."""

    def __init__(self, corpus: Corpus) -> None:
        self._corpus, self._old_indexes = corpus, frozenset(corpus.latest().indexes)
        self.built: dict[str, int] = {}
        self.missing_nodes: list[Unmade] = []

    def update(self) -> None:
        snapshot = self._corpus.latest()
        new = snapshot.indexes.keys() - self._old_indexes
        if new:
            counts = dict(snapshot.stats().nodes)
            self.built = {name: counts.get(name, 0) for name in sorted(new)}
            self.missing_nodes = [lack for lack in snapshot.unmade() if lack.group in new]

    def tell(self, screen: Screen) -> None:
        for name, nodes in self.built.items():
            screen.say(f"Group {name} was built, since this is its first use: {nodes} nodes.")
        for lack in self.missing_nodes[:SHOWN]:
            screen.say(f"not in {lack.group}: {one_line(lack.uri)}  {one_line(lack.reason, 300)}", "yellow")
        if len(self.missing_nodes) > SHOWN:
            more = len(self.missing_nodes) - SHOWN
            screen.say(f"… and {more} more; all: spolia docs report --store {self._corpus.path}", "yellow")

    def data(self) -> dict[str, Any]:
        return {"built": self.built, "unmade": unmade_data(self.missing_nodes)} if self.built else {}
