"""Export of a run's steps to OpenTelemetry, with the attributes of OpenInference and of the `gen_ai` conventions.

Sources: https://github.com/Arize-ai/openinference/tree/main/spec, https://opentelemetry.io/docs/specs/semconv/gen-ai/.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from hashlib import blake2b
from typing import Any
from urllib.parse import urlsplit

from opentelemetry.context import attach, detach
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, Status, StatusCode, TraceFlags, get_current_span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from starlette.types import ASGIApp, Receive, Scope, Send

from spolia.core.operator import Operator
from spolia.errors import QueryError
from spolia.journal.trace import ForwardingJournal, Journal, step_type_name, summarise
from spolia.journal.values import Detail, Exchange, redact_text
from spolia.models.protocols import LanguageModel, Scorer
from spolia.types import Answer, Generation, Query, Ranking

MOST_DOCUMENTS = 100
"""Passages of one span."""
SCOPE = InstrumentationScope("spolia")
MAX_CACHED_STEPS = 10_000
"""Steps whose attributes are kept."""


class OpenTelemetryJournal(ForwardingJournal):
    """A journal that also exports each step as a span.

    A span has its step, times, model, tokens, cost, and passages by id and score. If it is made inside a span of your
    own, its spans belong to that one. Texts are exported only with `content`, redacted like those of the journal.

    Args:
        journal: the journal that keeps the spans too; None to export only.
        processor: takes the spans, as `open_exporter` makes one.
        content: also export questions, prompts, replies, passages and errors; needs a journal with `values`.

    >>> from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    >>> from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
    >>> from spolia import Run, step
    >>> @step
    ... def double(n: int) -> int:
    ...     return 2 * n
    >>> spans = InMemorySpanExporter()
    >>> with Run(journal=OpenTelemetryJournal(None, SimpleSpanProcessor(spans))):
    ...     double(3)
    6
    >>> [(span.name, span.attributes["openinference.span.kind"]) for span in spans.get_finished_spans()]
    [('double', 'CHAIN')]
    """

    def __init__(self, journal: Journal | None, processor: SpanProcessor, *, content: bool = False) -> None:
        if content and (journal is None or not journal.values):
            raise QueryError("Only a journal that keeps values has texts to export. Write Runs(PATH, values=True).")
        super().__init__(journal)
        self.processor, self.content = processor, content
        self.redact = None if journal is None or not content else journal.redaction()
        self.parent = get_current_span().get_span_context()
        self.resource = _resource()

    def record(self, row: tuple[Any, ...], detail: Detail | None = None) -> None:
        self.processor.on_end(self._span(row, detail if self.content else None))
        super().record(row, detail)

    def _span(self, row: tuple[Any, ...], detail: Detail | None) -> ReadableSpan:
        (
            run,
            number,
            parent,
            _,
            op,
            started,
            seconds,
            cached,
            calls,
            input_tokens,
            output_tokens,
            _,
            usd,
            error,
            notes,
            out,
        ) = row
        fixed = _fixed_attributes(op)
        attributes: dict[str, Any] = {**fixed, "spolia.run": run, "spolia.cached": bool(cached)}
        kind = fixed["openinference.span.kind"]
        if kind == "LLM" and calls:
            attributes |= _token_attributes(input_tokens, output_tokens, usd)
        if isinstance(out, Ranking) and kind in ("RETRIEVER", "RERANKER"):
            prefix = "retrieval.documents" if kind == "RETRIEVER" else "reranker.output_documents"
            attributes |= _document_attributes(prefix, out, detail is not None)
        if error:
            attributes["error.type"] = error.partition(":")[0]  # messages of errors can quote texts
        if notes:
            attributes["spolia.degraded"] = True
        if detail is not None:
            attributes |= _text_attributes(kind, detail, out) | ({"spolia.notes": notes} if notes else {})
            if self.redact is not None:
                redact = self.redact
                attributes = {
                    key: redact_text(value, redact) if isinstance(value, str) else value
                    for key, value in attributes.items()
                }
                error = redact_text(error, redact)
        begun = int(started * 1e9)
        return ReadableSpan(
            " ".join(filter(None, (fixed.get("gen_ai.operation.name") if kind == "LLM" else step_type_name(op),
                                   fixed.get("gen_ai.request.model")))),
            context=self._context(run, number),
            parent=self._context(run, parent) if parent else self.parent if self.parent.is_valid else None,
            resource=self.resource,
            attributes=attributes,
            status=Status(StatusCode.ERROR, error if detail is not None else None) if error else Status(),
            start_time=begun,
            end_time=begun + int(seconds * 1e9),
            instrumentation_scope=SCOPE,
        )  # fmt: skip

    def _context(self, run: str, number: int) -> SpanContext:
        trace, flags = self.parent.trace_id, self.parent.trace_flags
        if not self.parent.is_valid:
            # by hash, so that each span finds its trace without shared state
            trace, flags = _number(run, 16), TraceFlags(TraceFlags.SAMPLED)
        return SpanContext(trace, _number(f"{run} {number}", 8), is_remote=False, trace_flags=flags)


@contextmanager
def open_exporter(url: str) -> Iterator[SpanProcessor]:
    """Open an exporter of spans to a collector, by OTLP over HTTP, in batches from a separate thread; it sends the last
    ones at the end. An absent collector costs spans, never an answer.

    Args:
        url: of the collector, as http://localhost:4318. Headers come from OTEL_EXPORTER_OTLP_HEADERS.
    """
    processor = BatchSpanProcessor(OTLPSpanExporter(f"{url.rstrip('/')}/v1/traces"))
    try:
        yield processor
    finally:
        processor.shutdown()  # type: ignore[no-untyped-call]


class Telemetry:
    """Export of a server's requests as spans.

    Args:
        processor: takes the spans.
        content: as for `OpenTelemetryJournal`.
    """

    def __init__(self, processor: SpanProcessor, content: bool = False) -> None:
        self.processor, self.content = processor, content

    def journal(self, journal: Journal | None) -> Journal:
        """Return the journal of one request."""
        return OpenTelemetryJournal(journal, self.processor, content=self.content)

    def wrap_application(self, app: ASGIApp) -> ASGIApp:
        """Wrap an application, so that its spans belong to the span that a request names in its header `traceparent`
        (W3C Trace Context)."""

        async def application(scope: Scope, receive: Receive, send: Send) -> None:
            headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope.get("headers", ())}
            token = attach(TraceContextTextMapPropagator().extract(headers))
            try:
                await app(scope, receive, send)
            finally:
                detach(token)

        return application


def _resource() -> Resource:
    """Return the service of the spans: that of OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES, else `spolia`."""
    return Resource.create({} if "OTEL_SERVICE_NAME" in os.environ else {SERVICE_NAME: "spolia"})


def _number(name: str, size: int) -> int:
    return int.from_bytes(blake2b(name.encode(), digest_size=size).digest())


_steps: dict[int, tuple[Operator[Any, Any], dict[str, Any]]] = {}


def _fixed_attributes(op: Operator[Any, Any]) -> dict[str, Any]:
    """Return the attributes that all calls of a step share: its kind and its model."""
    if (cached := _steps.get(id(op))) is not None:
        return cached[1]
    if len(_steps) >= MAX_CACHED_STEPS:  # operators that are made for each request must not fill the memory
        _steps.clear()
    attributes = _model_attributes(op)
    _steps[id(op)] = op, attributes  # the operator is held, so that no other one gets its id
    return attributes


def _model_attributes(op: Operator[Any, Any]) -> dict[str, Any]:
    values = [getattr(op, field.name) for field in fields(op)]  # type: ignore[arg-type]
    takes = op.takes()
    if (llm := next((value for value in values if isinstance(value, LanguageModel)), None)) is not None:
        model, address = str(getattr(llm, "model", type(llm).__name__)), urlsplit(getattr(llm, "base_url", ""))
        server = {"server.address": address.hostname} if address.hostname else {}
        return {
            "openinference.span.kind": "LLM", "llm.model_name": model, "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": "openai" if server else type(llm).__name__, "gen_ai.request.model": model,
            **server, **({"server.port": address.port} if server and address.port else {}),
        }  # fmt: skip
    if (
        takes is Ranking
        and (scorer := next((value for value in values if isinstance(value, Scorer)), None)) is not None
    ):
        model = str(getattr(scorer, "model", type(scorer).__name__))
        return {"openinference.span.kind": "RERANKER", "reranker.model_name": model}
    if (
        takes is Query
        and op.gives(Query) is Ranking
        and not any(isinstance(value, Operator) for value in _flatten(values))
    ):
        return {"openinference.span.kind": "RETRIEVER", "gen_ai.operation.name": "retrieval"}
    return {"openinference.span.kind": "CHAIN"}


def _flatten(values: Sequence[Any]) -> Iterator[Any]:
    for value in values:
        yield from value if isinstance(value, tuple) else (value,)


def _token_attributes(input_tokens: int, output_tokens: int, usd: float) -> dict[str, Any]:
    attributes = {
        "gen_ai.usage.input_tokens": input_tokens, "llm.token_count.prompt": input_tokens,
        "gen_ai.usage.output_tokens": output_tokens, "llm.token_count.completion": output_tokens,
        "llm.token_count.total": input_tokens + output_tokens,
    }  # fmt: skip
    return attributes | ({"llm.cost.total": usd} if usd else {})


def _document_attributes(prefix: str, ranking: Ranking, content: bool) -> dict[str, Any]:
    attributes: dict[str, Any] = {}
    for index, hit in enumerate(ranking.hits[:MOST_DOCUMENTS]):
        place = f"{prefix}.{index}.document"
        attributes |= {f"{place}.id": hit.node.id, f"{place}.score": float(hit.score)}
        if content:
            attributes[f"{place}.content"] = hit.node.text
    return attributes


def _text_attributes(kind: str, detail: Detail, out: Any) -> dict[str, Any]:
    """Return the texts of a step as attributes."""
    input_text = detail.input_value.question if isinstance(detail.input_value, Query) else summarise(detail.input_value)
    output_text = out.text if isinstance(out, (Answer, Generation)) else summarise(out)
    attributes: dict[str, Any] = {"input.value": input_text, "output.value": output_text}
    if kind == "LLM" and detail.exchanges:
        attributes |= _message_attributes(detail.exchanges[-1])
    if kind == "RETRIEVER":
        attributes["gen_ai.retrieval.query.text"] = input_text
    return attributes


def _message_attributes(last: Exchange) -> dict[str, Any]:
    reply = last.reply.text if isinstance(last.reply, Generation) else summarise(last.reply)
    prompt_messages = [(message.role, message.content) for message in last.prompt.messages]
    attributes: dict[str, Any] = {}
    for kind, messages in (("input", prompt_messages), ("output", [("assistant", reply)])):
        for index, (role, text) in enumerate(messages):
            place = f"llm.{kind}_messages.{index}.message"
            attributes |= {f"{place}.role": role, f"{place}.content": text}
        parts = [{"role": role, "parts": [{"type": "text", "content": text}]} for role, text in messages]
        attributes[f"gen_ai.{kind}.messages"] = json.dumps(parts)
    return attributes
