"""Routes for runs of flows, which only their askers see, and for users' feedback about answers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from fastapi import FastAPI, Query, Request
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field

from spolia.errors import UnknownRun
from spolia.evaluation.creation.feedback import Feedback
from spolia.journal.trace import Journal, TraceSpan
from spolia.server.json_reply import JsonReply
from spolia.server.keys import KeyHolder
from spolia.server.reply_schemas import TypedDict
from spolia.server.service import Service

JOURNAL_WAIT_S = 1.0
"""Seconds to wait until a run that has just ended is written."""
MAX_REVIEWED = 5
"""Passages of a run that a reviewer sees, beside the cited ones."""


class RunSummary(TypedDict):
    """A run: its start in seconds since the epoch, and how many questions it answered."""

    run: str
    started: float
    questions: int


class RunList(TypedDict):
    """Runs, newest first."""

    runs: list[RunSummary]


class TraceStepReply(TypedDict):
    """A step of a run. `result` sums up its output: nodes and scores, or an answer."""

    span: int
    parent: int
    step: str
    started: float
    seconds: float
    cached: bool
    calls: int
    input_tokens: int
    output_tokens: int
    cost_usd: float
    error: str
    result: Any


class RunReply(TypedDict):
    """A run. `hidden`: it read what its asker may not read any more, or what has changed, so results are left out."""

    run: str
    steps: list[TraceStepReply]
    hidden: bool


class FeedbackRequest(BaseModel):
    """Feedback of a user about an answer. Sending the same again has no effect; other words for the same run replace
    the first."""

    model_config = ConfigDict(extra="forbid")

    run: str = Field(pattern="^[0-9a-f]{12}$", description="`run` of the answer.")
    thumb: Literal["up", "down"]
    question: str = Field(default="", max_length=32_000, description="As the user asked it; the journal may lack it.")
    reason: str = Field(default="", max_length=4_000)
    answer: str = Field(default="", max_length=32_000, description="The right answer, in the user's words.")


class FeedbackReply(TypedDict):
    """Feedback that is stored on disk."""

    run: str
    thumb: Literal["up", "down"]


def add_run_routes(app: FastAPI, service: Service) -> None:
    @app.get("/v1/runs", response_model=RunList)
    async def runs(request: Request, limit: Annotated[int, Query(ge=1, le=100)] = 20) -> Response:
        """List the newest runs of the key's user."""
        holder, journal = request.scope["holder"], service.journal

        def work() -> list[RunSummary]:
            rows = [] if journal is None else journal.runs(limit, holder.owns)
            return [{"run": run, "started": began, "questions": lanes} for run, began, lanes in rows]

        with service.run(holder) as run:
            return JsonReply({"runs": await service.run_in_thread(run, work, request.receive)})

    @app.get("/v1/runs/{name}", response_model=RunReply)
    async def one_run(request: Request, name: str) -> Response:
        """Return the steps of a run of the key's user."""
        holder = request.scope["holder"]

        def work() -> RunReply:
            spans = _load_spans(service.journal, holder, name)
            is_hidden = not _is_readable(service, holder, spans)
            return {"run": name, "steps": [_step_reply(span, is_hidden) for span in spans], "hidden": is_hidden}

        with service.run(holder) as run:
            return JsonReply(await service.run_in_thread(run, work, request.receive))

    @app.post("/v1/feedback", response_model=FeedbackReply)
    async def feedback(request: Request, body: FeedbackRequest) -> Response:
        """Say whether an answer was good, and why; `spolia questions --feedback` makes questions of it."""
        holder = request.scope["holder"]

        def work() -> FeedbackReply:
            spans = _load_spans(service.journal, holder, body.run)
            if service.feedback is not None:
                service.feedback.add(_build_feedback(service.journal, holder, body, spans))
            return {"run": body.run, "thumb": body.thumb}

        with service.run(holder) as run:
            return JsonReply(await service.run_in_thread(run, work, request.receive))


def _load_spans(journal: Journal | None, holder: KeyHolder, run: str) -> list[TraceSpan]:
    """Return the spans of a run of this user.

    Raises:
        UnknownRun: it is another user's, or not there.
    """
    spans = [] if journal is None else journal.spans(run)
    if journal is not None and not spans:  # the journal writes in batches, and the run may just have ended
        journal.hand_over()
        journal.database.flush(JOURNAL_WAIT_S)
        spans = journal.spans(run)
    if journal is None or not spans or not holder.owns(frozenset(journal.askers(run) or ())):
        raise UnknownRun(f"The run {run!r:.80} is another user's, or not recorded. Write `run` of your answer.")
    return spans


def _parse_result(span: TraceSpan) -> dict[str, Any]:
    parsed = json.loads(span.result) if span.result else None
    return parsed if isinstance(parsed, dict) else {}


def _node_ids(plain: Any) -> Iterator[str]:
    """Yield the ids of the nodes in a summary, also of several values."""
    if isinstance(plain, list):
        for item in plain:
            yield from _node_ids(item)
    elif isinstance(plain, dict):
        yield from plain.get("cited", ())
        yield from (hit[0] for hit in plain.get("hits", ()))


def _is_readable(service: Service, holder: KeyHolder, spans: list[TraceSpan]) -> bool:
    """Return whether the user may still read all that a run read."""
    ids = {id for span in spans if span.result for id in _node_ids(json.loads(span.result))}
    return len(service.corpus.snapshot().nodes_of_ids(sorted(ids), holder.principals)) == len(ids)


def _step_reply(span: TraceSpan, is_hidden: bool) -> TraceStepReply:
    usage = span.usage
    return {
        "span": span.span, "parent": span.parent, "step": span.step, "started": span.started, "seconds": span.seconds,
        "cached": span.cached, "calls": usage.calls, "input_tokens": usage.input_tokens,
        # Of an error only the class: its message may quote what the user may not read.
        "output_tokens": usage.output_tokens, "cost_usd": usage.cost_usd, "error": span.error.partition(":")[0],
        "result": None if is_hidden or not span.result else json.loads(span.result),
    }  # fmt: skip


def _build_feedback(
    journal: Journal | None, holder: KeyHolder, body: FeedbackRequest, spans: list[TraceSpan]
) -> Feedback:
    questions = journal.questions(body.run, 1).values() if journal is not None else ()
    answer = next((result for span in spans if "answer" in (result := _parse_result(span))), {})
    hits: list[Any] = next(
        (step_hits for span in reversed(spans) if (step_hits := _parse_result(span).get("hits"))), []
    )
    return Feedback(
        body.run, holder.name, next(iter(questions), body.question), answer.get("answer", ""),
        answer.get("stop_reason") == "abstained", tuple(answer.get("cited", ())),
        tuple(hit[0] for hit in hits[:MAX_REVIEWED]), body.thumb, body.reason, body.answer,
    )  # fmt: skip
