"""Results of a question as plain data: the same for the routes of the server and for `--json` on the command line."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, cast

from spolia.core.operator import Operator
from spolia.errors import WiringError
from spolia.run.lane import Lane, count_reasons
from spolia.run.run import Run
from spolia.services.aliases import Promotion
from spolia.stores.corpus import Corpus
from spolia.types import Answer, Box, Citation, Hit, Ranking

if TYPE_CHECKING:
    from spolia.server.reply_schemas import AliasReply, AnswerReply, Degraded, SearchReply


def alias_reply(promotion: Promotion) -> AliasReply:
    return {"flow": promotion.name, "sha256": promotion.sha256, "promoted": promotion.promoted}


def answer_reply(
    answer: Answer, corpus: Corpus, run: Run, lane: Lane, flow: Operator[Any, Any], *, question: str, name: str
) -> AnswerReply:
    """Return an answer as plain data; each citation has its boxes on the pages that the holder may read."""
    citations = [
        citation.json() | {"boxes": [asdict(box) for box in _boxes(corpus, run, citation)]}
        for citation in answer.citations
    ]
    fields = answer.json() | {"citations": citations} | _degraded(lane, flow)
    return cast("AnswerReply", {"question": question, "flow": name, "run": run.id, **fields})


def search_reply(
    hits: Iterable[Hit], run: Run, lane: Lane, flow: Operator[Any, Any], *, question: str, name: str
) -> SearchReply:
    fields = {"hits": [hit.json() for hit in hits], **_degraded(lane, flow)}
    return cast("SearchReply", {"question": question, "flow": name, "run": run.id, **fields})


def passages(result: object) -> Ranking:
    """Return the passages behind the result of a flow."""
    if isinstance(result, Ranking):
        return result
    if isinstance(result, Answer) and result.evidence is not None:
        return result.evidence
    raise WiringError(f"The flow gave a {type(result).__name__}; to search, it must give a Ranking or an Answer.")


def _degraded(lane: Lane, flow: Operator[Any, Any]) -> dict[str, Degraded]:
    reasons = count_reasons(lane.count_calls(flow)) if lane.reasons else {}  # only then, since it walks the flow
    return {"degraded": reasons} if reasons else {}


def _boxes(corpus: Corpus, run: Run, citation: Citation) -> tuple[Box, ...]:
    if citation.span is None or citation.span.pages is None:
        return ()  # without pages there are no boxes: ask the store nothing
    return corpus.snapshot().boxes(citation.document, citation.span, run.principals)
