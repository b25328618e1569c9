"""What flows are made of, over the passages of a data set."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from spolia.cli.described import STAND_IN
from spolia.cli.parts import CHOOSING, Parts, from_file, is_file
from spolia.errors import MissingExtra, WeightsError
from spolia.evaluation.corpus import indexed
from spolia.evaluation.datasets import DataSet
from spolia.flows.builtin import bm25, named
from spolia.flows.default import SAMPLE, covers
from spolia.models.minilm import MiniLM
from spolia.models.protocols import Embedder, LanguageModel
from spolia.operator import Operator


def parts_over(
    data: DataSet,
    flows: Sequence[str],
    weights: str,
    llm: LanguageModel | None,
    told: Callable[[int, int], None],
    known: tuple[Operator[Any, Any] | type, ...] = (),
) -> tuple[Parts, str]:
    """The parts for running flows over a data set, indexed where it is not yet: with vectors where a flow has a use for
    them; and why the embedder is not used, where only flows that choose would use it."""
    embedder, wanted = MiniLM(weights), [flow for flow in flows if embeds(flow, known)]
    why = unsuited(data, embedder) if wanted and all(flow in CHOOSING for flow in wanted) else ""
    if why or not wanted:
        return Parts(indexed(data, told=told), None, llm, known), why
    return Parts(indexed(data, embedder, told=told), embedder, llm, known), ""


def embeds(flow: str, known: tuple[Operator[Any, Any] | type, ...] = ()) -> bool:
    """Whether a flow embeds questions, so that its passages need vectors; raises when there is no such flow."""
    if not is_file(flow):
        return named(flow) is not bm25
    return any(isinstance(part, Embedder) for part in from_file(flow, STAND_IN.but(known=known)).resources)


def unsuited(data: DataSet, embedder: Embedder) -> str:
    """Why an embedder does not suit a data set, so that nothing is embedded in vain; nothing when it does."""
    try:
        texts = [passage.text for passage in data.passages()]
        return covers(texts[:: max(1, len(texts) // SAMPLE)][:SAMPLE], embedder)
    except (WeightsError, MissingExtra) as error:
        return f"{embedder.name} cannot be used ({error})"
