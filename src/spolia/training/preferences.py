"""Pairs of replies for DPO, as PrefRAG makes them: does what a source found help, or is another source needed?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from functools import partial
from random import Random
from typing import Any, NamedTuple

from spolia.core.operator import Operator
from spolia.core.run_context import gather
from spolia.errors import DataError, EmptyReply
from spolia.evaluation.experiment.gold_locations import locate_gold
from spolia.evaluation.measures.answers.string_match import F1
from spolia.models.parsers import Reasoned, YesNo
from spolia.models.parsers.numbers import Number
from spolia.models.prompting.role import Ask, Brief, Role, generate_reply, record_failures
from spolia.models.protocols import LanguageModel
from spolia.training.rows import Row, observed, preference_row, trainable
from spolia.types import Answer, Failure, Item, Prompt, Query, Ranking

DRAWS = tuple((temperature, top_p) for temperature in (0.1, 0.5, 0.9) for top_p in (0.1, 0.5, 0.9))
"""Temperature and top_p of the nine candidates."""
TRUE_FOR_FALSE = 3
"""Rows in which the source helps, for each in which it does not."""
NEAREST = Role("spolia:training/prompts/nearest_reply.txt", Number(0, len(DRAWS)), default="0")


class Decision(NamedTuple):
    """Where a trajectory decides whether the preferred source helps: how it asks, and what the source found."""

    item: Item
    ask: Ask
    brief: Brief
    new: Ranking

    @property
    def prompt(self) -> Prompt:
        return self.ask.reads(self.brief)

    def status(self, text: str) -> bool | None:
        """What a reply says; None if it cannot be read."""
        try:
            said = self.ask.role.parser.parse(text)
            return bool(said[0] if isinstance(said, tuple) else said)
        except ValueError:
            return None


class Reference(NamedTuple):
    """What the right reply is: whether the source helps, and a big model's own words, if it was asked."""

    status: bool
    text: str = ""


def prefrag_rows(
    flow: Operator[Query, Answer], items: Sequence[Item], judge: LanguageModel | None = None, *, seed: int = 0
) -> list[Row]:
    """Preferences for the model of `prefrag`, three of status True for one of False, and none of a question twice.

    A trajectory of the flow is followed. Wherever it compares what the preferred source found, its model decides nine
    times, with temperature and top_p in {0.1, 0.5, 0.9}². Replies with the right status are positive, the others
    negative, and unreadable ones neither. The best positive is chosen; a negative is drawn by lot. A model without the
    field `top_p` draws three times at each temperature.

    Args:
        flow: `prefrag`, with the model that is to learn.
        judge: a big model, which gives the right status, and says which positive reasons most like its own reply.
            Without one the gold decides: a source helps if it found a gold passage that was not there before, and the
            best positive is the one that the others agree with most, by F1 of their words.
        seed: of the lots.

    Raises:
        DataError: there are not three rows of status True and one of False.

    Source: Zhao et al., "PrefRAG: preference-driven multi-source retrieval augmented generation", 2025. Its published
    code picks by a number that it reads as a text, so that its best positive is drawn by lot.
    """
    draw = Random(seed)
    by_item: dict[str, list[Row]] = {}
    for decision in decisions(flow, items):
        if (row := _row(decision, judge, draw)) is not None:
            by_item.setdefault(decision.item.id, []).append(row)
    return balanced(by_item, draw)


def decisions(flow: Operator[Query, Answer], items: Sequence[Item]) -> Iterator[Decision]:
    """Each comparison of the trajectories of the questions; the first retrieval of one has nothing to compare with."""
    known = locate_gold(trainable(items), [flow])
    for item, _, steps in observed(flow, items):
        new: Ranking | None = None
        for step in steps:
            if isinstance(step.out, Ranking):
                new = step.out
            elif isinstance(step.op, Ask) and isinstance(step.op.role.parser, (Reasoned, YesNo)) and new is not None:
                yield Decision(known.locate_item(item), step.op, step.given, new)


def _row(decision: Decision, judge: LanguageModel | None, draw: Random) -> Row | None:
    right = by_gold(decision) if judge is None else by_judge(decision, judge)
    if right is None:
        return None
    said = [(text, decision.status(text)) for text in candidates(decision.ask, decision.prompt)]
    positives = [text for text, status in said if status is right.status]
    negatives = [text for text, status in said if status is (not right.status)]
    if not positives or not negatives:
        return None
    chosen = nearest(positives, right.text, judge)
    row = preference_row(decision.item.id, decision.prompt, chosen, draw.choice(negatives), "prefrag")
    return row | {"status": right.status}


def candidates(ask: Ask, prompt: Prompt) -> list[str]:
    """Nine replies to one prompt."""
    how: dict[str, Any] = {"max_tokens": ask.max_tokens}
    asked = [
        partial(generate_reply, drawn_from(ask.llm, top_p), prompt.but(sample=number), None, temperature=warm, **how)
        for number, (warm, top_p) in enumerate(DRAWS)
    ]
    found = record_failures(gather(asked), "A candidate failed and is left out")
    return [one.text for one in found if not isinstance(one, Failure)]


def drawn_from(llm: Any, top_p: float) -> Any:
    """The model, drawing from this share of the probability, if it has the setting."""
    return llm.but(top_p=top_p) if any(one.name == "top_p" for one in fields(llm)) else llm


def by_gold(decision: Decision) -> Reference | None:
    """A source helps if it found a gold passage that the model has not seen; None for a question without gold."""
    if not decision.item.gold:
        return None
    seen = dict(decision.brief.places)["passages"]
    fresh = (node for node in decision.new.nodes if not any(node.shown_text in text for text in seen))
    return Reference(any(node.document in decision.item.documents for node in fresh))


def by_judge(decision: Decision, judge: LanguageModel) -> Reference | None:
    """The big model's reply to the same prompt; None if it is empty or cannot be read."""
    try:
        text = generate_reply(judge, decision.prompt, None, max_tokens=decision.ask.max_tokens).text
    except EmptyReply:
        return None
    status = decision.status(text)
    return None if status is None else Reference(status, text)


def nearest(positives: Sequence[str], reference: str, judge: LanguageModel | None) -> str:
    """The positive that reasons most like the reference: as the judge says, else by F1 of the words.

    >>> nearest(("yes: it names the town", "yes: a town is named", "yes"), "yes: the town is named", None)
    'yes: a town is named'
    """
    if judge is not None:
        number = int(Ask(judge, NEAREST, 16).reply(replies=tuple(positives), reference=reference))
        if 0 < number <= len(positives):
            return positives[number - 1]
    others = [reference] if reference else positives
    return max(positives, key=lambda text: sum(_agreement(text, other) for other in others))


def _agreement(text: str, other: str) -> float:
    return F1().score(Answer(text), Item("", "", (other,))) or 0.0


def balanced(by_item: Mapping[str, Sequence[Row]], draw: Random) -> list[Row]:
    """One row of each question, three of status True for each of status False, by lot."""
    single = [draw.choice(rows) for rows in by_item.values()]
    helping, other = ([row for row in single if row["status"] is status] for status in (True, False))
    pairs = min(len(helping) // TRUE_FOR_FALSE, len(other))
    if not pairs:
        raise DataError(
            f"{len(helping)} rows of status True and {len(other)} of False cannot be balanced {TRUE_FOR_FALSE}:1. Give "
            "more questions, or a model whose nine replies differ more."
        )
    kept = {row["id"] for row in (*draw.sample(helping, TRUE_FOR_FALSE * pairs), *draw.sample(other, pairs))}
    return [row for row in single if row["id"] in kept]
