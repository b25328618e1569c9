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
from spolia.flows.evidence import citing, shown
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
from spolia.training.flow_classifiers import answered, with_gold
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


def messages(prompt: Prompt) -> list[Row]:
    return [{"role": one.role, "content": one.content} for one in prompt.messages]


def reply(text: str) -> list[Row]:
    """A text as TRL reads one: the only message of an assistant."""
    return [{"role": "assistant", "content": text}]


def completion_row(kind: str, item: str, prompt: Prompt, text: str) -> Row:
    """A row for `sft`: the model learns to reply with `text`."""
    return {"id": item, "kind": kind, "prompt": messages(prompt), "completion": reply(text)}


def preference_row(item: str, prompt: Prompt, chosen: str, rejected: str, source: str) -> Row:
    """A row for `dpo`: of two replies to one prompt, the first is better. `source` says who judged."""
    return {"id": item, "source": source, "prompt": messages(prompt)} | {
        "chosen": reply(chosen),
        "rejected": reply(rejected),
    }


def trainable(items: Sequence[Item]) -> Sequence[Item]:
    """The questions; DataError if one is kept apart for reports."""
    _refuse_reported(item.id for item in items)
    return items


def _refuse_reported(ids: Iterable[str]) -> None:
    if apart := [id for id in ids if id and part_of(id) == KEPT_APART]:
        raise DataError(
            f"{several(len(apart), 'question')} of the part report cannot be trained on, the first {apart[0]!r}: its "
            "score would say nothing. Leave these out; `spolia rows` does."
        )


# Reading.


def read_rows(path: Path, method: str) -> list[Row]:
    """The rows of a file for a method of training.

    Raises:
        DataError: the file has no rows, or one that does not follow the form, or one of a question of the part report.
    """
    found = [_checked(place, row, FIELDS[method]) for place, row in lines(path)]
    if not found:
        raise DataError(f"{path} has no rows. Write some with `spolia rows`.")
    _refuse_reported(str(row.get("id", "")) for row in found)
    return found


def _checked(place: str, row: Row, replies: tuple[str, ...]) -> Row:
    """A row in which each reply is a list of messages; a text stands for the only one."""
    texts = {name: reply(found) if isinstance(found := row.get(name), str) else found for name in replies}
    for name, said in {"prompt": row.get("prompt"), **texts}.items():
        if not _are_messages(said):
            raise DataError(
                f"{place} has no messages in {name!r}. Write "
                f'"{name}": [{{"role": "{"user" if name == "prompt" else "assistant"}", "content": "…"}}].'
            )
    if len(replies) > 1 and texts["chosen"] == texts["rejected"]:
        raise DataError(f"{place} prefers a reply to itself. Write two different ones, or leave the row out.")
    return row | texts


def _are_messages(found: Any) -> bool:
    return isinstance(found, list) and bool(found) and all(
        isinstance(one, dict) and isinstance(one.get("role"), str) and isinstance(one.get("content"), str)
        for one in found
    )  # fmt: skip


# Writing: what needs no model.


def marked(answer: str, found: Ranking) -> str:
    """The answer, with the number of the first passage that has it word for word.

    >>> found = Ranking(Query("Who?"), (Hit(Node("a", "It was Sony."), 2.0), Hit(Node("b", "Nokia, in Salo."), 1.0)))
    >>> marked("Nokia", found), marked("Siemens", found)
    ('Nokia [2]', 'Siemens')
    """
    number = next((at for at, node in enumerate(found.nodes, 1) if place_of(answer, node.text)), 0)
    return f"{answer} [{number}]" if number else answer


def ra_dit_rows(items: Sequence[Item], search: Retriever, passages: int = 3) -> Iterator[Row]:
    """A row for each question and each of its best passages, alone in the prompt; the reply is the accepted answer.

    The model learns to read, and not to trust a passage that does not help.

    Source: Lin et al., "RA-DIT", ICLR 2024 (LM-ft; the passages are its top 3).
    """
    for item, found in _found(items, search):
        for hit in found.cut(passages).hits:
            alone = found.but(hits=(hit,))
            row = completion_row("ra-dit", item.id, READER.build_prompt(alone), marked(item.answers[0], alone))
            yield row | {"passage": hit.node.id}


def feedback_rows(feedback: Iterable[Feedback], nodes: Mapping[str, Node]) -> Iterator[Row]:
    """A row of each answer that a user has corrected: the corrected answer is the better one (`dpo`).

    Args:
        nodes: the passages that may be read, by id; an answer from other ones gives no row.
    """
    every = list(feedback)
    for one, draft in zip(every, drafts_of(every, nodes), strict=True):
        ids = list(dict.fromkeys((*one.found, *one.cited)))  # as they were numbered for the reader
        if not (one.corrected and one.answer and one.question and ids) or not all(id in nodes for id in ids):
            continue
        found = Ranking(Query(one.question), tuple(Hit(nodes[id], 1 / rank) for rank, id in enumerate(ids, 1)))
        if (better := marked(one.corrected, found)) != one.answer:
            yield preference_row(tuning_item(draft).id, READER.build_prompt(found), better, one.answer, "feedback")


def reward_rows(items: Sequence[Item], search: Retriever, passages: int = 5) -> Iterator[Row]:
    """A row for each question: its prompt with passages, and all that a measure needs to score the reply (`grpo`)."""
    for item, found in _found(items, search):
        best = found.cut(passages)
        texts = [{"id": one.id, "document": one.document, "text": one.text} for one in best.nodes]
        gold = [[one.document if isinstance(one, Quote) else one for one in group] for group in item.gold]
        asked = {"question": item.question, "answers": list(item.answers), "gold": gold, "passages": texts}
        yield {"id": item.id, "kind": "reward", "prompt": messages(READER.build_prompt(best)), **asked}


def _found(items: Sequence[Item], search: Retriever) -> Iterator[tuple[Item, Ranking]]:
    for item in trainable(items):
        check_cancelled()
        if item.answers and (found := search(Query(item.question))).hits:
            yield item, found


def answer_measure(measure: SetMeasure) -> Measure:
    """A measure that scores one answer; DataError for one of a whole set, or of passages."""
    if not isinstance(measure, Measure) or isinstance(measure, RetrievalMeasure):
        raise DataError(f"{measure} does not score an answer by itself. Write EM, F1, CiteP or CiteR, for example.")
    return measure


def reward(measure: Measure, row: Row, text: str) -> float:
    """The score of a reply to the prompt of a row: its marks `[1]` are citations of the row's passages.

    >>> from spolia.evaluation.measures.registry import parse_measure
    >>> passage = {"id": "n1", "document": "p1", "text": "Nokia employed Olsen."}
    >>> row = {"id": "q", "question": "Who?", "answers": ["Nokia"], "gold": [["p1"]], "passages": [passage]}
    >>> [reward(parse_measure(name), row, text) for name in ("EM", "CiteP") for text in ("Nokia [1]", "Sony")]
    [1.0, 0.0, 1.0, 0.0]
    """
    item = Item(row["id"], row["question"], tuple(row["answers"]), tuple(map(tuple, row["gold"])))
    hits = [Hit(Node(one["id"], one["text"], document=one["document"]), 1.0) for one in row["passages"]]
    if not measure.applies(item):
        raise DataError(f"{measure} cannot score question {item.id!r}. Write a measure that fits what the rows have.")
    return float(measure.score(citing(text, Ranking(Query(item.question), tuple(hits))), item) or 0.0)


# Writing: what models have said.


def corag_rows(items: Sequence[Item], chains: Iterable[SampledChain], search: Retriever) -> Iterator[Row]:
    """Of each question, the most promising chain that leads to an accepted answer, up to the pair that suffices: a row
    for each sub-question, each sub-answer, and the answer.

    Args:
        chains: of `sample_chains`; those that never lead to the answer are rejected.
        search: the retriever that they were sampled with, so that the prompts are those of the flow.

    Source: Wang et al., "Chain-of-retrieval augmented generation", 2025 (rejection sampling, three tasks).
    """
    accepted: dict[str, SampledChain] = {}
    for one in chains:
        if one.enough and (one.item not in accepted or one.promise > accepted[one.item].promise):
            accepted[one.item] = one
    for item in trainable(items):
        if item.id not in accepted:
            continue
        chain = accepted[item.id].prefix(accepted[item.id].enough)
        for number, (question, said) in enumerate(chain.pairs):
            before = chain.but(pairs=chain.pairs[:number]).written(corag.CHARACTERS)
            yield completion_row("corag sub-question", item.id, corag.NEXT.prompt_for({"chain": before}), question)
            if passages := shown(search(chain.query.asking(question)), best_last=True):
                prompt = corag.REPLY.prompt_for({"question": question, "passages": passages})
                yield completion_row("corag sub-answer", item.id, prompt, said)
        found = search(chain.query)
        places = {"chain": chain.written(corag.CHARACTERS), "passages": shown(found, best_last=True)}
        yield completion_row("corag answer", item.id, corag.FINAL.prompt_for(places), marked(item.answers[0], found))


def self_rag_rows(items: Sequence[Item], search: Retriever, llm: LanguageModel, others: int = 2) -> Iterator[Row]:
    """The control tokens of the flow `self-rag`, chosen from gold, after the prompts that it sends.

    - `[No Retrieval]` for a question that the model answers rightly from memory, with that answer and its utility; else
      `[Retrieval]`.
    - `[Relevant]` for a passage that is gold, `[Irrelevant]` for another one. The model answers from it alone.
    - `[Fully supported]` if the words of the answer occur in the passage in a row, `[Partially supported]` if at least
      half of them occur, else `[No support / Contradictory]`.
    - `[Utility:5]` if an accepted answer occurs in the answer; 4 for an F1 of at least 0.5, 3 above 0, 2 if it
      abstains, else 1.

    Args:
        search: finds passages; of each question all gold ones have a row.
        others: passages without gold that have a row, of each question, at most.

    Source: Asai et al., "Self-RAG", ICLR 2024, where GPT-4 chooses the tokens.
    """
    worth = ByNextToken(llm, WORTH)  # type: ignore[arg-type]
    retrieve, recall = (tokens[0] for _, tokens in WORTH)
    for item, found, gold in with_gold([item for item in trainable(items) if item.answers], search):
        query = Query(item.question)
        with Run.current() or Run(share=True):
            known = answered(ClosedBook(llm), query)
        if known is not None and Accuracy().score(known, item) == 1:
            yield completion_row("self-rag retrieve", item.id, worth.reads(query), recall)
            prompt = RECALL.prompt_for({"question": item.question})
            yield completion_row("self-rag recall", item.id, prompt, _said(known) + _utility(known, item))
            continue
        yield completion_row("self-rag retrieve", item.id, worth.reads(query), retrieve)
        wanted = [at for at, is_gold in enumerate(gold) if is_gold]
        wanted += [at for at, is_gold in enumerate(gold) if not is_gold][:others]
        for at in sorted(wanted):
            alone = found.but(hits=(found.hits[at],))
            with Run.current() or Run(share=True):
                answer = answered(Reader(llm, max_passages=1), alone)
            if answer is None:
                continue
            shown = tuple(number_passages(alone, 8000))
            said = _said(answer)
            written = (*RELEVANT,)[not gold[at]] + said + _support(said, shown[0]) + _utility(answer, item)
            prompt = READ.prompt_for({"question": item.question, "passages": shown})
            yield completion_row("self-rag read", item.id, prompt, written)


def _said(answer: Answer) -> str:
    return escape_marks(MARKER.sub("", answer.text).strip())


def _support(text: str, passage: str) -> str:
    fully, partly, not_at_all = SUPPORTED
    if occurs_in(text, passage):
        return fully
    said, held = words(text), words(passage)
    return partly if said and sum(word in held for word in said) >= len(said) / 2 else not_at_all


def _utility(answer: Answer, item: Item) -> str:
    f1 = F1().score(answer, item) or 0.0
    right = Accuracy().score(answer, item) == 1
    grade = 5 if right else 4 if f1 >= 0.5 else 3 if f1 > 0 else 2 if answer.abstained else 1
    return (*USEFUL,)[grade - 1]


class RetrieverRow(NamedTuple):
    """A question, passages that were found, and how well a model foretells the answer from each: ln P(y | d, q)."""

    id: str
    query: str
    passages: list[Row]
    logprobs: list[float]


def retriever_rows(
    items: Sequence[Item], search: Retriever, llm: ScoresContinuations, passages: int = 10
) -> Iterator[RetrieverRow]:
    """A row for each question, for a retriever that learns from a language model.

    A passage for which the model fails is left out; a question with fewer than two has no row.

    Source: Lin et al., "RA-DIT", ICLR 2024 (R-ft; the passages are its top 10).
    """
    for item, found in _found(items, search):
        nodes = found.cut(passages).nodes
        asked = [Continuation.from_texts(item.answers[0], node.text, item.question) for node in nodes]
        scored = record_failures(Likelihood(llm).batch(asked), "A passage could not be scored and is left out")
        known = [(node, said) for node, said in zip(nodes, scored, strict=True) if not isinstance(said, Failure)]
        if len(known) > 1:
            texts = [{"id": node.id, "text": node.text} for node, _ in known]
            yield RetrieverRow(
                item.id, item.question, texts, [fsum(token.logprob for token in said) for _, said in known]
            )


class ObservedStep(NamedTuple):
    """A step of a flow: what it is, took and gave, and what models were sent and replied in it."""

    op: Operator[Any, Any]
    given: Any
    out: Any
    exchanges: tuple[Exchange, ...]


class StepLog(Journal):
    """Keeps the steps of a run in memory, by lane: `Run(journal=StepLog())`. With `Run(replies=…)` a run that was
    killed asks models nothing twice; with `Run(cache=…)` steps from the cache would be missing."""

    def __init__(self) -> None:
        self.values = True
        self.lanes: dict[int, list[ObservedStep]] = {}

    def record(self, row: tuple[Any, ...], detail: Detail | None = None) -> None:
        if detail is not None:
            step = ObservedStep(detail.op, detail.given, row[-1], tuple(detail.exchanges))
            self.lanes.setdefault(row[3], []).append(step)

    def end_run(self) -> None:
        """Nothing is written."""


def observed(
    flow: Operator[Query, Answer], items: Sequence[Item]
) -> Iterator[tuple[Item, Answer, Sequence[ObservedStep]]]:
    """Each question with the flow's answer and all steps, in the order in which they ended.

    Questions that fail are left out; if all do, the first failure is raised.
    """
    with Run.current() or Run(journal=StepLog()) as run:
        if not isinstance(log := run.journal, StepLog):
            raise DataError("The run keeps no steps in memory. Write Run(journal=StepLog()).")
        for start in range(0, len(items), WINDOW):
            window = items[start : start + WINDOW]
            log.lanes.clear()
            answers = flow.batch([Query(item.question) for item in window])
            failures = [answer for answer in answers if isinstance(answer, Failure)]
            if len(failures) == len(window):
                raise failures[0].raised()
            lanes = [log.lanes[number] for number in sorted(log.lanes)]
            of_question = {steps[-1].given.question: steps for steps in lanes if isinstance(steps[-1].given, Query)}
            for item, answer in zip(window, answers, strict=True):
                if not isinstance(answer, Failure):
                    yield item, answer, of_question[item.question]


def distillation_rows(
    flow: Operator[Query, Answer], items: Sequence[Item], accept: Measure | None = None
) -> Iterator[Row]:
    """What a teacher's flow asks its model and what the model replies, a row for each call.

    A reply that was sent back counts with what came in its place; cut and unreadable ones are left out. With
    `auto_rag` as the flow the rows are the turns of its dialogues.

    Args:
        accept: only questions whose answer this measure gives the full score, for example EM; None for all.
    """
    for item, answer, steps in observed(flow, trainable(items)):
        if accept is None or (accept.applies(item) and accept.score(answer, item) == accept.range[1]):
            for step in steps:
                if (text := learned_from(step)) is not None:
                    yield completion_row("distill", item.id, step.exchanges[0].prompt, text)


def learned_from(step: ObservedStep) -> str | None:
    """The reply that a student should give to the first prompt of a step; None if it has none."""
    last = step.exchanges[-1].reply if step.exchanges else None
    if not isinstance(last, Generation) or last.finish_reason == "length" or not last.text.strip():
        return None
    if isinstance(step.op, Ask):
        try:
            step.op.role.parser.parse(last.text)
        except ValueError:
            return None
    return last.text
