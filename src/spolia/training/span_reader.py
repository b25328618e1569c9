"""Trainer of a reader of spans: MiniLM and a linear layer that says where an answer begins and ends."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from spolia.core.operator import Operator
from spolia.core.run_context import access
from spolia.errors import DataError, require_extra
from spolia.evaluation.experiment.gold_locations import locate_gold
from spolia.flow_files.built_in_flows import bm25, hybrid
from spolia.generation.extract import Extract
from spolia.generation.span_reader import SpanReader
from spolia.models.onnx.tokenizer import Tokens
from spolia.models.onnx.tuned_minilm import CLS, HEAD, PART, QUESTION_TOKENS, SEP, MiniLMSpans
from spolia.models.protocols import Embedder
from spolia.models.trained_weights import TrainedWeights
from spolia.stores.corpus import NodeGroup
from spolia.training.fine_tuning import VALIDATED, MiniLMTrainer, TorchRecipe, pad_rows
from spolia.types import Answer, Item, Query, Ranking

with require_extra("local", "torch", "Training a reader"):
    import torch
    from torch import Tensor
    from torch.nn import functional

POOL = 32
"""Batches whose examples are sorted by length together."""
ALL = 1 << 30


class SpanExample(NamedTuple):
    """A question, a passage, and the spans of the passage that answer; none if it has no answer."""

    question: str
    text: str
    spans: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class SpanRecipe(TorchRecipe):
    """Hyperparameters of a span reader.

    Args:
        rate: AdamW's; higher than for the other parts, as the layers have more to learn.
        foreign: share of the answered questions that get another question's passage, and so no answer.
        unanswered: questions without answer in an epoch, as a share of those with one.
    """

    rate: float = 2e-4
    warm_up: float = 100
    foreign: float = 0.06
    unanswered: float = 1 / 16


class Row(NamedTuple):
    """A window of tokens, with the answer's first and last token; 0 for none."""

    ids: list[int]
    first: int
    start: int
    end: int


class SpanReaderTrainer(MiniLMTrainer[list[Row]]):
    """Trainer of `SpanReader`'s model, from questions whose answers are in passages; questions without answer help.

    A question's passages are those of its gold, or of the document `meta.passage_id`; the answer stands where
    `meta.spans` says so, else where a quote of the gold or an answer first occurs. A question with a passage and
    without gold and answers teaches to abstain.

    Args:
        group: with the passages; its search finds them, in the flows that are compared.
        embedder: one that the group was built with; None to search by words alone.
        texts: passages by document, to train on others than those of the group.
        recipe: how to train.
        base: folder with the weights of `MiniLM`; empty to look them up.
    """

    part, version, steps, measure = PART, 2, 1_200, "F1"
    head, outputs = HEAD, 2
    recipe: SpanRecipe

    def __init__(
        self,
        group: NodeGroup,
        embedder: Embedder | None = None,
        texts: Mapping[str, Sequence[str]] | None = None,
        recipe: SpanRecipe = SpanRecipe(),
        base: str = "",
    ) -> None:
        super().__init__(recipe, base)
        self.group, self.embedder, self.texts = group, embedder, texts

    def prepare(self, items: Sequence[Item], validation: Sequence[Item], seed: int) -> None:
        examples = self._build_examples(items)
        self.answered_examples = [example for example in examples if example.spans]
        self.unanswered_examples = [example for example in examples if not example.spans]
        self.validation = self._build_examples(validation[:VALIDATED])
        if len(self.answered_examples) < self.recipe.batch:
            raise DataError(
                f"Questions with an answer in their passage: {len(self.answered_examples)} of {len(items)} to train "
                f"on, and {self.recipe.batch} are needed at least. Give more questions, with `answers` and `gold_ids`; "
                "in a table, the columns `answer` and `file`."
            )
        self.notes = [
            f"Trained on {len(self.answered_examples)} questions with an answer, "
            f"{len(self.unanswered_examples)} without."
        ]
        self.load_tensors(seed)
        self._epoch: tuple[int, list[list[Row]]] = (-1, [])

    def _build_examples(self, items: Sequence[Item]) -> list[SpanExample]:
        texts = self.texts
        if texts is None:
            locations = locate_gold(items, [self.untrained()])
            items = [locations.locate_item(item) for item in items]
            snapshot, principals, name = self.group.snapshot(), access(), self.group.name
            documents = {document for item in items for document in documents_of(item)}
            texts = {
                document_id: [node.text for node in snapshot.numbered_nodes(document_id, name, 0, ALL, principals)]
                for document_id in sorted(documents)
            }
        return [example for item in items if (example := make_example(item, texts))]

    def validation_batches(self) -> list[list[Row]]:
        # The same windows in each validation.
        rows = sorted((self._make_row(example, Random(0)) for example in self.validation), key=lambda row: len(row.ids))
        return [rows[start : start + self.recipe.batch] for start in range(0, len(rows), self.recipe.batch)]

    def untrained(self) -> Operator[Query, Answer]:
        """Build the flow that answers with whole sentences, by the words that they share with the question."""
        return self._search >> Extract()

    def trained(self, weights: TrainedWeights) -> Operator[Query, Answer]:
        window = self.recipe.window
        return self._search >> SpanReader(MiniLMSpans(weights, self.base, window, overlap=window // 4))

    @property
    def _search(self) -> Operator[Query, Ranking]:
        return bm25(self.group) if self.embedder is None else hybrid(self.group, self.embedder)

    def loss(self, rows: Sequence[Row]) -> Tensor:
        """Return the mean of -ln p(start) - ln p(end) over [CLS] and the tokens of the text."""
        ids, real = pad_rows([row.ids for row in rows])
        logits = self.logits(ids, real)
        allowed = torch.zeros_like(real)
        for number, row in enumerate(rows):
            allowed[number, row.first : len(row.ids) - 1] = True
        allowed[:, 0] = True  # [CLS] stands for no answer
        logits = logits.masked_fill(~allowed[:, :, None], -1e9)
        ends = torch.tensor([[row.start, row.end] for row in rows])
        return functional.cross_entropy(logits[..., 0], ends[:, 0]) + functional.cross_entropy(
            logits[..., 1], ends[:, 1]
        )

    def batch(self) -> list[Row]:
        """Return the examples of this step; each epoch has its own order."""
        unanswered_count = min(len(self.unanswered_examples), int(len(self.answered_examples) * self.recipe.unanswered))
        epoch, number = divmod(self.done, (len(self.answered_examples) + unanswered_count) // self.recipe.batch)
        if self._epoch[0] != epoch:
            self._epoch = (epoch, self._make_batches(unanswered_count, Random(f"{self.seed}/{epoch}")))
        return self._epoch[1][number]

    def _make_batches(self, unanswered_count: int, draw: Random) -> list[list[Row]]:
        """Group all answered questions and a few others into batches of similar length, so that little is padded."""
        examples = [self._maybe_foreign(example, draw) for example in self.answered_examples] + draw.sample(
            self.unanswered_examples, unanswered_count
        )
        draw.shuffle(examples)
        rows, size = [self._make_row(example, draw) for example in examples], self.recipe.batch
        rows = rows[: len(rows) // size * size]  # `batch` counts whole batches
        for start in range(0, len(rows), POOL * size):
            rows[start : start + POOL * size] = sorted(rows[start : start + POOL * size], key=lambda row: len(row.ids))
        batches = [rows[position : position + size] for position in range(0, len(rows), size)]
        draw.shuffle(batches)  # else each pool would begin with its short batches
        return batches

    def _maybe_foreign(self, example: SpanExample, draw: Random) -> SpanExample:
        return (
            # An answer is not there: it teaches to abstain.
            SpanExample(example.question, draw.choice(self.answered_examples).text)
            if draw.random() < self.recipe.foreign
            else example
        )

    def _make_row(self, example: SpanExample, draw: Random) -> Row:
        """Cut a window of the passage that holds its shortest answer, at a random place."""
        question_ids, text = self.read(example.question).ids[:QUESTION_TOKENS], self.read(example.text)
        first = len(question_ids) + 2  # [CLS] and [SEP]
        room = self.recipe.window - first - 1  # the last [SEP]
        low, high, answer = 0, max(0, len(text.ids) - room), None
        if example.spans:
            answer = token_span(text, *min(example.spans, key=lambda span: span[1] - span[0]))
        if answer is not None and answer[1] - answer[0] < room:
            low, high = max(0, answer[1] - room + 1), min(answer[0], high)
        start = draw.randint(min(low, high), high)
        ids = [CLS, *question_ids, SEP, *text.ids[start : start + room], SEP]
        if answer is None or answer[1] - answer[0] >= room:
            return Row(ids, first, 0, 0)
        return Row(ids, first, first + answer[0] - start, first + answer[1] - start)


def token_span(text: Tokens, start: int, end: int) -> tuple[int, int] | None:
    """Return the first and last token of a range of characters; None if no token is in it."""
    inside = [number for number, (begins, ends) in enumerate(text.ends) if begins < end and ends > start]
    return (inside[0], inside[-1]) if inside else None


def documents_of(item: Item) -> list[str]:
    """Return the documents that may hold the answer of a question."""
    return [*filter(None, [str(dict(item.meta).get("passage_id", ""))]), *sorted(item.documents)]


def make_example(item: Item, texts: Mapping[str, Sequence[str]]) -> SpanExample | None:
    """Make an example of a question and its passage; None without a passage, or without the answer in it.

    >>> item = Item("q", "Who dug it?", ("Ann",), (("d",),))
    >>> make_example(item, {"d": ["It is a mine.", "It was dug by Ann."]})
    SpanExample(question='Who dug it?', text='It was dug by Ann.', spans=((14, 17),))
    """
    passages = [text for document in documents_of(item) for text in texts.get(document, ())]
    marked = [(span["start"], span["text"]) for span in json.loads(str(dict(item.meta).get("spans", "[]")))]
    answers = [quote.text for quote in item.quotes] or list(item.answers)
    for text in passages:
        candidates = marked or [(text.find(words), words) for words in answers]
        places = (
            (start, start + len(words)) for start, words in candidates if words and text[start:].startswith(words)
        )
        if spans := tuple(places):
            return SpanExample(item.question, text, spans)
    return SpanExample(item.question, passages[0]) if passages and not (item.answers or item.gold) else None
