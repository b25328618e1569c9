"""Rows that language models are tuned on: JSON lines in the form that TRL reads (docs/reference/formats.md)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import fsum
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from spolia.core.operator import Operator, Retriever
from spolia.core.plurals import several
from spolia.core.run_context import check_cancelled
from spolia.errors import DataError
from spolia.evaluation.creation.feedback import Feedback, drafts_of
from spolia.evaluation.creation.filters import place_of
from spolia.evaluation.creation.items import tuning_item
from spolia.evaluation.data.dataset import part_of
from spolia.evaluation.data.json_lines import read_rows as lines
from spolia.evaluation.measures.answers.string_match import F1, Accuracy
from spolia.evaluation.measures.measure import Measure, SetMeasure
from spolia.evaluation.measures.retrieval_measure import RetrievalMeasure
from spolia.flows import corag
from spolia.flows.evidence import cite_reply, show_hits
from spolia.flows.self_rag import READ, RECALL, RELEVANT, SUPPORTED, USEFUL, WORTH
from spolia.generation.prompt import number_passages
from spolia.generation.reader import ClosedBook, Reader
from spolia.journal import Exchange, Journal
from spolia.journal.values import Detail
from spolia.models.marks import escape_marks
from spolia.models.parsers.parser import MARKER
from spolia.models.prompting.likelihood import Continuation, Likelihood
from spolia.models.prompting.role import Ask, record_failures
from spolia.models.prompting.stand_in_models import ScriptedModel
from spolia.models.protocols import LanguageModel, ScoresContinuations
from spolia.models.text_classifier import occurs_in, words
from spolia.orchestration.llm_router import ByNextToken
from spolia.run import Run
from spolia.training.flow_classifiers import search_with_gold, try_answer
from spolia.training.sufficiency import SampledChain
from spolia.training.training import KEPT_APART
from spolia.types import Answer, Failure, Generation, Hit, Item, Node, Prompt, Query, Quote, Ranking

Row: TypeAlias = dict[str, Any]
FIELDS: Mapping[str, tuple[str, ...]] = {"sft": ("completion",), "dpo": ("chosen", "rejected"), "grpo": ()}
"""Of each method, the fields that hold a reply; all have a `prompt`."""
READER = Reader(ScriptedModel(("",)), "brief")
"""Writes prompts of a short answer; its model is not asked."""
WINDOW = 64
"""Questions that are asked together."""


def message_rows(prompt: Prompt) -> list[Row]:
    return [{"role": message.role, "content": message.content} for message in prompt.messages]


def reply_message(text: str) -> list[Row]:
    """Return a text in TRL's form: the only message of an assistant."""
    return [{"role": "assistant", "content": text}]


def completion_row(kind: str, item: str, prompt: Prompt, text: str) -> Row:
    """Build a row for `sft`: the model learns to reply with `text`."""
    return {"id": item, "kind": kind, "prompt": message_rows(prompt), "completion": reply_message(text)}


def preference_row(item: str, prompt: Prompt, chosen: str, rejected: str, source: str) -> Row:
    """Build a row for `dpo`: the first of two replies to a prompt is better. `source` says who judged."""
    return {"id": item, "source": source, "prompt": message_rows(prompt)} | {
        "chosen": reply_message(chosen),
        "rejected": reply_message(rejected),
    }


def check_trainable(items: Sequence[Item]) -> Sequence[Item]:
    """Return the questions; DataError if one is kept apart for reports."""
    _refuse_reported(item.id for item in items)
    return items


def _refuse_reported(ids: Iterable[str]) -> None:
    if reported := [id for id in ids if id and part_of(id) == KEPT_APART]:
        raise DataError(
            f"{several(len(reported), 'question')} of the part report cannot be trained on, the first {reported[0]!r}: "
            "its score would say nothing. Leave these out; `spolia rows` does."
        )


# Reading.


def read_rows(path: Path, method: str) -> list[Row]:
    """Read the rows of a file for a method of training.

    Raises:
        DataError: the file has no rows, or one that does not follow the form, or one of a question of the part report.
    """
    rows = [_check_row(place, row, FIELDS[method]) for place, row in lines(path)]
    if not rows:
        raise DataError(f"{path} has no rows. Write some with `spolia rows`.")
    _refuse_reported(str(row.get("id", "")) for row in rows)
    return rows


def _check_row(place: str, row: Row, replies: tuple[str, ...]) -> Row:
    """Return a row in which each reply is a list of messages; a text stands for the only one."""
    texts = {name: reply_message(value) if isinstance(value := row.get(name), str) else value for name in replies}
    for name, content in {"prompt": row.get("prompt"), **texts}.items():
        if not _are_messages(content):
            raise DataError(
                f"{place} has no messages in {name!r}. Write "
                f'"{name}": [{{"role": "{"user" if name == "prompt" else "assistant"}", "content": "…"}}].'
            )
    if len(replies) > 1 and texts["chosen"] == texts["rejected"]:
        raise DataError(f"{place} prefers a reply to itself. Write two different ones, or leave the row out.")
    return row | texts


def _are_messages(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(
        isinstance(message, dict) and isinstance(message.get("role"), str) and isinstance(message.get("content"), str)
        for message in value
    )  # fmt: skip


# Writing: what needs no model.


def cite_passage(answer: str, ranking: Ranking) -> str:
    """Append to the answer the number of the first passage that has it word for word.

    >>> found = Ranking(Query("Who?"), (Hit(Node("a", "It was Sony."), 2.0), Hit(Node("b", "Nokia, in Salo."), 1.0)))
    >>> cite_passage("Nokia", found), cite_passage("Siemens", found)
    ('Nokia [2]', 'Siemens')
    """
    number = next((position for position, node in enumerate(ranking.nodes, 1) if place_of(answer, node.text)), 0)
    return f"{answer} [{number}]" if number else answer


def ra_dit_rows(items: Sequence[Item], search: Retriever, passages: int = 3) -> Iterator[Row]:
    """Yield a row for each of a question's best passages, alone in the prompt; the accepted answer is the reply.

    The model learns to read, and not to trust a passage that does not help.

    Source: Lin et al., "RA-DIT", ICLR 2024 (LM-ft; the passages are its top 3).
    """
    for item, ranking in _search_items(items, search):
        for hit in ranking.cut(passages).hits:
            single = ranking.but(hits=(hit,))
            row = completion_row("ra-dit", item.id, READER.build_prompt(single), cite_passage(item.answers[0], single))
            yield row | {"passage": hit.node.id}


def feedback_rows(feedback: Iterable[Feedback], nodes: Mapping[str, Node]) -> Iterator[Row]:
    """Yield a row for each answer that a user has corrected: the corrected answer is the better one (`dpo`).

    Args:
        nodes: the passages that may be read, by id; an answer from other ones gives no row.
    """
    entries = list(feedback)
    for entry, draft in zip(entries, drafts_of(entries, nodes), strict=True):
        ids = list(dict.fromkeys((*entry.found, *entry.cited)))  # as they were numbered for the reader
        if not (entry.corrected and entry.answer and entry.question and ids) or not all(id in nodes for id in ids):
            continue
        ranking = Ranking(Query(entry.question), tuple(Hit(nodes[id], 1 / rank) for rank, id in enumerate(ids, 1)))
        if (better := cite_passage(entry.corrected, ranking)) != entry.answer:
            yield preference_row(tuning_item(draft).id, READER.build_prompt(ranking), better, entry.answer, "feedback")


def reward_rows(items: Sequence[Item], search: Retriever, passages: int = 5) -> Iterator[Row]:
    """Yield a row for each question: its prompt with passages, and what a measure needs to score the reply (`grpo`)."""
    for item, ranking in _search_items(items, search):
        best = ranking.cut(passages)
        texts = [{"id": node.id, "document": node.document, "text": node.text} for node in best.nodes]
        gold = [[node.document if isinstance(node, Quote) else node for node in group] for group in item.gold]
        columns = {"question": item.question, "answers": list(item.answers), "gold": gold, "passages": texts}
        yield {"id": item.id, "kind": "reward", "prompt": message_rows(READER.build_prompt(best)), **columns}


def _search_items(items: Sequence[Item], search: Retriever) -> Iterator[tuple[Item, Ranking]]:
    for item in check_trainable(items):
        check_cancelled()
        if item.answers and (ranking := search(Query(item.question))).hits:
            yield item, ranking


def answer_measure(measure: SetMeasure) -> Measure:
    """Return a measure that scores one answer; DataError for one of a whole set, or of passages."""
    if not isinstance(measure, Measure) or isinstance(measure, RetrievalMeasure):
        raise DataError(f"{measure} does not score an answer by itself. Write EM, F1, CiteP or CiteR, for example.")
    return measure


def score_reply(measure: Measure, row: Row, text: str) -> float:
    """Score a reply to the prompt of a row; its marks `[1]` are citations of the row's passages.

    >>> from spolia.evaluation.measures.registry import parse_measure
    >>> passage = {"id": "n1", "document": "p1", "text": "Nokia employed Olsen."}
    >>> row = {"id": "q", "question": "Who?", "answers": ["Nokia"], "gold": [["p1"]], "passages": [passage]}
    >>> [score_reply(parse_measure(name), row, text) for name in ("EM", "CiteP") for text in ("Nokia [1]", "Sony")]
    [1.0, 0.0, 1.0, 0.0]
    """
    item = Item(row["id"], row["question"], tuple(row["answers"]), tuple(map(tuple, row["gold"])))
    hits = [Hit(Node(passage["id"], passage["text"], document=passage["document"]), 1.0) for passage in row["passages"]]
    if not measure.applies(item):
        raise DataError(f"{measure} cannot score question {item.id!r}. Write a measure that fits what the rows have.")
    return float(measure.score(cite_reply(text, Ranking(Query(item.question), tuple(hits))), item) or 0.0)


# Writing: what models have said.


def corag_rows(items: Sequence[Item], chains: Iterable[SampledChain], search: Retriever) -> Iterator[Row]:
    """Yield rows of the most promising chain of each question that leads to an accepted answer, up to the pair that
    suffices: one for each sub-question, each sub-answer, and the answer.

    Args:
        chains: of `sample_chains`; those that never lead to the answer are rejected.
        search: the retriever that they were sampled with, so that the prompts are those of the flow.

    Source: Wang et al., "Chain-of-retrieval augmented generation", 2025 (rejection sampling, three tasks).
    """
    accepted: dict[str, SampledChain] = {}
    for candidate in chains:
        if candidate.pairs_needed and (
            candidate.item not in accepted or candidate.promise > accepted[candidate.item].promise
        ):
            accepted[candidate.item] = candidate
    for item in check_trainable(items):
        if item.id not in accepted:
            continue
        chain = accepted[item.id].prefix(accepted[item.id].pairs_needed)
        for number, (question, answer) in enumerate(chain.pairs):
            previous = chain.but(pairs=chain.pairs[:number]).format_text(corag.CHARACTERS)
            yield completion_row("corag sub-question", item.id, corag.NEXT.prompt_for({"chain": previous}), question)
            if passages := show_hits(search(chain.query.asking(question)), best_last=True):
                prompt = corag.REPLY.prompt_for({"question": question, "passages": passages})
                yield completion_row("corag sub-answer", item.id, prompt, answer)
        ranking = search(chain.query)
        places = {"chain": chain.format_text(corag.CHARACTERS), "passages": show_hits(ranking, best_last=True)}
        yield completion_row(
            "corag answer", item.id, corag.FINAL.prompt_for(places), cite_passage(item.answers[0], ranking)
        )


def self_rag_rows(
    items: Sequence[Item], search: Retriever, llm: LanguageModel, extra_passages: int = 2
) -> Iterator[Row]:
    """Yield the control tokens of the flow `self-rag`, chosen from gold, after the prompts that it sends.

    - `[No Retrieval]` for a question that the model answers rightly from memory, with that answer and its utility; else
      `[Retrieval]`.
    - `[Relevant]` for a passage that is gold, `[Irrelevant]` for another one. The model answers from it alone.
    - `[Fully supported]` if the words of the answer occur in the passage in a row, `[Partially supported]` if at least
      half of them occur, else `[No support / Contradictory]`.
    - `[Utility:5]` if an accepted answer occurs in the answer; 4 for an F1 of at least 0.5, 3 above 0, 2 if it
      abstains, else 1.

    Args:
        search: finds passages; of each question all gold ones have a row.
        extra_passages: passages without gold that have a row, of each question, at most.

    Source: Asai et al., "Self-RAG", ICLR 2024, where GPT-4 chooses the tokens.
    """
    worth = ByNextToken(llm, WORTH)  # type: ignore[arg-type]
    retrieve, recall = (tokens[0] for _, tokens in WORTH)
    for item, ranking, gold_flags in search_with_gold(
        [item for item in check_trainable(items) if item.answers], search
    ):
        query = Query(item.question)
        with Run.current() or Run(share=True):
            recalled = try_answer(ClosedBook(llm), query)
        if recalled is not None and Accuracy().score(recalled, item) == 1:
            yield completion_row("self-rag retrieve", item.id, worth.reads(query), recall)
            prompt = RECALL.prompt_for({"question": item.question})
            yield completion_row(
                "self-rag recall", item.id, prompt, _plain_text(recalled) + _utility_token(recalled, item)
            )
            continue
        yield completion_row("self-rag retrieve", item.id, worth.reads(query), retrieve)
        numbers = [number for number, is_gold_hit in enumerate(gold_flags) if is_gold_hit]
        numbers += [number for number, is_gold_hit in enumerate(gold_flags) if not is_gold_hit][:extra_passages]
        for number in sorted(numbers):
            single = ranking.but(hits=(ranking.hits[number],))
            with Run.current() or Run(share=True):
                answer = try_answer(Reader(llm, max_passages=1), single)
            if answer is None:
                continue
            passages = tuple(number_passages(single, 8000))
            text = _plain_text(answer)
            completion = (
                (*RELEVANT,)[not gold_flags[number]]
                + text
                + _support_token(text, passages[0])
                + _utility_token(answer, item)
            )
            prompt = READ.prompt_for({"question": item.question, "passages": passages})
            yield completion_row("self-rag read", item.id, prompt, completion)


def _plain_text(answer: Answer) -> str:
    return escape_marks(MARKER.sub("", answer.text).strip())


def _support_token(text: str, passage: str) -> str:
    fully, partly, not_at_all = SUPPORTED
    if occurs_in(text, passage):
        return fully
    text_words, passage_words = words(text), words(passage)
    return (
        partly
        if text_words and sum(word in passage_words for word in text_words) >= len(text_words) / 2
        else not_at_all
    )


def _utility_token(answer: Answer, item: Item) -> str:
    f1 = F1().score(answer, item) or 0.0
    is_right = Accuracy().score(answer, item) == 1
    grade = 5 if is_right else 4 if f1 >= 0.5 else 3 if f1 > 0 else 2 if answer.abstained else 1
    return (*USEFUL,)[grade - 1]


class RetrieverRow(NamedTuple):
    """A question, its passages, and how well a model foretells the answer from each: ln P(y | d, q)."""

    id: str
    query: str
    passages: list[Row]
    logprobs: list[float]


def retriever_rows(
    items: Sequence[Item], search: Retriever, llm: ScoresContinuations, passages: int = 10
) -> Iterator[RetrieverRow]:
    """Yield a row for each question, for a retriever that learns from a language model.

    A passage for which the model fails is left out; a question with fewer than two has no row.

    Source: Lin et al., "RA-DIT", ICLR 2024 (R-ft; the passages are its top 10).
    """
    for item, ranking in _search_items(items, search):
        nodes = ranking.cut(passages).nodes
        continuations = [Continuation.from_texts(item.answers[0], node.text, item.question) for node in nodes]
        results = record_failures(Likelihood(llm).batch(continuations), "A passage could not be scored and is left out")
        scored_nodes = [
            (node, tokens) for node, tokens in zip(nodes, results, strict=True) if not isinstance(tokens, Failure)
        ]
        if len(scored_nodes) > 1:
            texts = [{"id": node.id, "text": node.text} for node, _ in scored_nodes]
            yield RetrieverRow(
                item.id, item.question, texts, [fsum(token.logprob for token in tokens) for _, tokens in scored_nodes]
            )


class ObservedStep(NamedTuple):
    """A step of a flow: its operator, its input and output, and its exchanges with models."""

    op: Operator[Any, Any]
    value: Any
    out: Any
    exchanges: tuple[Exchange, ...]


class StepLog(Journal):
    """Journal that keeps the steps of a run in memory, by lane: `Run(journal=StepLog())`. With `Run(replies=…)`, a run
    that was killed asks models nothing twice; with `Run(cache=…)`, steps from the cache would be missing."""

    def __init__(self) -> None:
        self.values = True
        self.lanes: dict[int, list[ObservedStep]] = {}

    def record(self, row: tuple[Any, ...], detail: Detail | None = None) -> None:
        if detail is not None:
            step = ObservedStep(detail.op, detail.input_value, row[-1], tuple(detail.exchanges))
            self.lanes.setdefault(row[3], []).append(step)

    def end_run(self) -> None:
        """Do nothing; the steps stay in memory."""


def observe_flow(
    flow: Operator[Query, Answer], items: Sequence[Item]
) -> Iterator[tuple[Item, Answer, Sequence[ObservedStep]]]:
    """Yield each question with the flow's answer and all steps, in the order in which they ended.

    Questions that fail are left out; if all do, the first failure is raised.
    """
    with Run.current() or Run(journal=StepLog()) as run:
        if not isinstance(log := run.journal, StepLog):
            raise DataError("The run keeps no steps in memory. Write Run(journal=StepLog()).")
        for start in range(0, len(items), WINDOW):
            window = items[start : start + WINDOW]
            log.lanes.clear()  # only the steps of one window stay in memory
            answers = flow.batch([Query(item.question) for item in window])
            failures = [answer for answer in answers if isinstance(answer, Failure)]
            if len(failures) == len(window):
                raise failures[0].raised()
            lanes = [log.lanes[number] for number in sorted(log.lanes)]
            # The last step to end is the flow itself, whose input is the question.
            steps_by_question = {
                steps[-1].value.question: steps for steps in lanes if isinstance(steps[-1].value, Query)
            }
            for item, answer in zip(window, answers, strict=True):
                if not isinstance(answer, Failure):
                    yield item, answer, steps_by_question[item.question]


def distillation_rows(
    flow: Operator[Query, Answer], items: Sequence[Item], accept: Measure | None = None
) -> Iterator[Row]:
    """Yield a row for each call of a teacher's flow: the prompt, and the model's reply.

    A reply that was sent back counts with what came in its place; cut and unreadable ones are left out. With
    `auto_rag` as the flow the rows are the turns of its dialogues.

    Args:
        accept: only questions whose answer this measure gives the full score, for example EM; None for all.
    """
    for item, answer, steps in observe_flow(flow, check_trainable(items)):
        if accept is None or (accept.applies(item) and accept.score(answer, item) == accept.range[1]):
            for step in steps:
                if (text := reply_to_learn(step)) is not None:
                    yield completion_row("distill", item.id, step.exchanges[0].prompt, text)


def reply_to_learn(step: ObservedStep) -> str | None:
    """Return the reply that a student should give to the first prompt of a step; None if it has none."""
    last = step.exchanges[-1].reply if step.exchanges else None
    if not isinstance(last, Generation) or last.finish_reason == "length" or not last.text.strip():
        return None
    if isinstance(step.op, Ask):
        try:
            step.op.role.parser.parse(last.text)
        except ValueError:
            return None
    return last.text
