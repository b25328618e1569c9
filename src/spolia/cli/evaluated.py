"""A data set made ready for a flow: with vectors only where the flow has a use for them."""

from __future__ import annotations

from collections.abc import Callable

from spolia.cli.described import STAND_IN
from spolia.cli.parts import CHOOSING, Parts, from_file, is_file
from spolia.errors import MissingExtra, WeightsError
from spolia.evaluation.corpus import indexed
from spolia.evaluation.datasets import DataSet
from spolia.flows.builtin import bm25, named
from spolia.flows.default import SAMPLE, covers
from spolia.models.minilm import MiniLM
from spolia.models.protocols import Embedder, LanguageModel


def parts_over(
    data: DataSet, flow: str, weights: str, llm: LanguageModel | None, told: Callable[[int, int], None]
) -> tuple[Parts, str]:
    """The parts for running a flow over a data set, indexed where it is not yet; and what was chosen, in one line."""
    embedder, wanted = MiniLM(weights), embeds(flow)
    why = unsuited(data, embedder) if flow in CHOOSING else ""
    if why or not wanted:
        return Parts(indexed(data, told=told), None, llm), why and f"bm25: {why}"
    return Parts(indexed(data, embedder, told=told), embedder, llm), ""


def embeds(flow: str) -> bool:
    """Whether a flow embeds questions, so that its passages need vectors; raises when there is no such flow."""
    if not is_file(flow):
        return named(flow) is not bm25
    return any(isinstance(part, Embedder) for part in from_file(flow, STAND_IN).resources)


def unsuited(data: DataSet, embedder: Embedder) -> str:
    """Why an embedder does not suit a data set, so that nothing is embedded in vain; nothing when it does."""
    try:
        texts = [passage.text for passage in data.passages()]
        return covers(texts[:: max(1, len(texts) // SAMPLE)][:SAMPLE], embedder)
    except (WeightsError, MissingExtra) as error:
        return f"{embedder.name} cannot be used ({error})"
