"""Pairs of replies for DPO, as in PrefRAG: does what a source found help, or is another source needed?"""

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
from spolia.training.rows import Row, check_trainable, observe_flow, preference_row
from spolia.types import Answer, Failure, Item, Prompt, Query, Ranking

DRAWS = tuple((temperature, top_p) for temperature in (0.1, 0.5, 0.9) for top_p in (0.1, 0.5, 0.9))
"""Temperature and top_p of the nine candidates."""
TRUE_FOR_FALSE = 3
"""Rows in which the source helps, for each in which it does not."""
NEAREST = Role("spolia:training/prompts/nearest_reply.txt", Number(0, len(DRAWS)), default="0")


class Decision(NamedTuple):
    """Point of a trajectory where the model decides whether the preferred source helps, and what the source found."""

    item: Item
    ask: Ask
    brief: Brief
    ranking: Ranking

    @property
    def prompt(self) -> Prompt:
        return self.ask.reads(self.brief)

    def read_status(self, text: str) -> bool | None:
        """Read the status from a reply; None if it cannot be read."""
        try:
            value = self.ask.role.parser.parse(text)
            return bool(value[0] if isinstance(value, tuple) else value)
        except ValueError:
            return None


class Reference(NamedTuple):
    """Right reply: whether the source helps, and the big model's own words if it was asked."""

    status: bool
    text: str = ""


def prefrag_rows(
    flow: Operator[Query, Answer], items: Sequence[Item], judge: LanguageModel | None = None, *, seed: int = 0
) -> list[Row]:
    """Build preferences for the model of `prefrag`: three of status True for one of False, at most one per question.

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
    for decision in find_decisions(flow, items):
        if (row := _preference_row(decision, judge, draw)) is not None:
            by_item.setdefault(decision.item.id, []).append(row)
    return balance_rows(by_item, draw)


def find_decisions(flow: Operator[Query, Answer], items: Sequence[Item]) -> Iterator[Decision]:
    """Yield each comparison in the trajectories of the questions; the first retrieval has nothing to compare with."""
    locations = locate_gold(check_trainable(items), [flow])
    for item, _, steps in observe_flow(flow, items):
        ranking: Ranking | None = None
        for step in steps:
            if isinstance(step.out, Ranking):
                ranking = step.out
            elif (
                isinstance(step.op, Ask) and isinstance(step.op.role.parser, (Reasoned, YesNo)) and ranking is not None
            ):
                yield Decision(locations.locate_item(item), step.op, step.value, ranking)


def _preference_row(decision: Decision, judge: LanguageModel | None, draw: Random) -> Row | None:
    reference = judge_by_gold(decision) if judge is None else ask_judge(decision, judge)
    if reference is None:
        return None
    replies = [(text, decision.read_status(text)) for text in draw_candidates(decision.ask, decision.prompt)]
    positives = [text for text, status in replies if status is reference.status]
    # None, a reply that cannot be read, is neither.
    negatives = [text for text, status in replies if status is (not reference.status)]
    if not positives or not negatives:
        return None
    chosen = choose_nearest(positives, reference.text, judge)
    row = preference_row(decision.item.id, decision.prompt, chosen, draw.choice(negatives), "prefrag")
    return row | {"status": reference.status}


def draw_candidates(ask: Ask, prompt: Prompt) -> list[str]:
    """Draw nine replies to one prompt."""
    options: dict[str, Any] = {"max_tokens": ask.max_tokens}
    calls = [
        partial(
            generate_reply,
            with_top_p(ask.llm, top_p),
            prompt.but(sample=number),
            None,
            temperature=temperature,
            **options,
        )
        for number, (temperature, top_p) in enumerate(DRAWS)
    ]
    replies = record_failures(gather(calls), "A candidate failed and is left out")
    return [reply.text for reply in replies if not isinstance(reply, Failure)]


def with_top_p(llm: Any, top_p: float) -> Any:
    """Return the model with this `top_p`, or as it is if it lacks the setting."""
    return llm.but(top_p=top_p) if any(field.name == "top_p" for field in fields(llm)) else llm


def judge_by_gold(decision: Decision) -> Reference | None:
    """Judge by gold: a source helps if it found a new gold passage; None for a question without gold."""
    if not decision.item.gold:
        return None
    passages = dict(decision.brief.places)["passages"]
    new_nodes = (node for node in decision.ranking.nodes if not any(node.shown_text in text for text in passages))
    return Reference(any(node.document in decision.item.documents for node in new_nodes))


def ask_judge(decision: Decision, judge: LanguageModel) -> Reference | None:
    """Ask the big model the same prompt; None if its reply is empty or cannot be read."""
    try:
        text = generate_reply(judge, decision.prompt, None, max_tokens=decision.ask.max_tokens).text
    except EmptyReply:
        return None
    status = decision.read_status(text)
    return None if status is None else Reference(status, text)


def choose_nearest(positives: Sequence[str], reference: str, judge: LanguageModel | None) -> str:
    """Choose the positive that reasons most like the reference: by the judge, or by F1 of the words.

    >>> choose_nearest(("yes: it names the town", "yes: a town is named", "yes"), "yes: the town is named", None)
    'yes: a town is named'
    """
    if judge is not None:
        number = int(Ask(judge, NEAREST, 16).reply(replies=tuple(positives), reference=reference))
        if 0 < number <= len(positives):  # 0: the judge found none
            return positives[number - 1]
    # Without a reference, the reply that is most like all others.
    references = [reference] if reference else positives
    return max(positives, key=lambda text: sum(_word_f1(text, candidate) for candidate in references))


def _word_f1(text: str, reference: str) -> float:
    return F1().score(Answer(text), Item("", "", (reference,))) or 0.0


def balance_rows(by_item: Mapping[str, Sequence[Row]], draw: Random) -> list[Row]:
    """Choose one row of each question at random, three of status True for each of status False."""
    rows_drawn = [draw.choice(rows) for rows in by_item.values()]
    helpful, unhelpful = ([row for row in rows_drawn if row["status"] is status] for status in (True, False))
    pairs = min(len(helpful) // TRUE_FOR_FALSE, len(unhelpful))
    if not pairs:
        raise DataError(
            f"{len(helpful)} rows of status True and {len(unhelpful)} of False cannot be balanced {TRUE_FOR_FALSE}:1. "
            "Give more questions, or a model whose nine replies differ more."
        )
    kept_ids = {row["id"] for row in (*draw.sample(helpful, TRUE_FOR_FALSE * pairs), *draw.sample(unhelpful, pairs))}
    return [row for row in rows_drawn if row["id"] in kept_ids]
