"""Spans for OpenTelemetry: their tree, attributes, and that texts stay here unless they are wanted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("opentelemetry.sdk", reason="the extra `otel` is not installed")

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from spolia import BM25, Corpus, Query, Reader, Run, ScriptedModel, step, sync
from spolia.errors import QueryError
from spolia.journal import Runs
from spolia.services.telemetry import OpenTelemetryJournal

TEXTS = ("tide", "moon")


@pytest.fixture
def spans() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[Runs]:
    with Runs(tmp_path / "runs.db", values=True) as new_runs:
        yield new_runs


def answer_question(tmp_path: Path, journal: OpenTelemetryJournal, reply: str = "The moon [1].") -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "tides.md").write_text("The moon causes the tide.")
    sync(tmp_path / "notes", corpus := Corpus(str(tmp_path / "n.spolia")))
    flow = BM25(corpus.group(), top_k=5) >> Reader(ScriptedModel((reply,)))
    with Run(journal=journal, principal="ann"):
        flow(Query("What causes the tide?"))


def by_name(spans: InMemorySpanExporter) -> dict[str, Any]:
    return {span.name: span for span in spans.get_finished_spans()}


def test_spans_are_a_tree_with_model_tokens_and_passages_but_no_texts(
    tmp_path: Path, runs: Runs, spans: InMemorySpanExporter
) -> None:
    answer_question(tmp_path, OpenTelemetryJournal(runs.journal, SimpleSpanProcessor(spans)))
    spans_by_name = by_name(spans)
    root, search, read = spans_by_name["Then"], spans_by_name["BM25"], spans_by_name["chat ScriptedModel"]
    assert root.parent is None
    assert search.parent.span_id == read.parent.span_id == root.context.span_id
    assert {named_span.context.trace_id for named_span in spans_by_name.values()} == {root.context.trace_id}
    assert search.attributes["openinference.span.kind"] == "RETRIEVER"
    assert search.attributes["retrieval.documents.0.document.score"] > 0
    assert read.attributes["gen_ai.operation.name"] == "chat"
    assert read.attributes["gen_ai.usage.output_tokens"] == read.attributes["llm.token_count.completion"] > 0
    assert "gen_ai.usage.output_tokens" not in root.attributes  # else a sum over all spans would count them twice
    assert root.start_time <= search.start_time <= search.end_time <= read.end_time <= root.end_time
    everything = " ".join(span.to_json() for span in spans_by_name.values()).lower()
    assert not any(text in everything for text in TEXTS)
    assert runs.journal.flush()
    ((run, _, _),) = runs.journal.runs()
    assert len(runs.journal.spans(run)) == len(spans_by_name)
    assert runs.journal.askers(run) == ("ann",)


def test_texts_are_exported_where_wanted_and_redacted(tmp_path: Path, spans: InMemorySpanExporter) -> None:
    def redact(text: str) -> str:
        return text.replace("moon", "[body]")

    with Runs(tmp_path / "runs.db", values=True, redact=redact) as runs:
        answer_question(tmp_path, OpenTelemetryJournal(runs.journal, SimpleSpanProcessor(spans), content=True))
    spans_by_name = by_name(spans)
    read = spans_by_name["chat ScriptedModel"].attributes
    assert spans_by_name["BM25"].attributes["gen_ai.retrieval.query.text"] == "What causes the tide?"
    assert "The [body] causes the tide." in spans_by_name["BM25"].attributes["retrieval.documents.0.document.content"]
    assert "tide" in json.loads(read["gen_ai.input.messages"])[-1]["parts"][0]["content"]
    assert read["llm.output_messages.0.message.content"] == "The [body] [1]."
    assert "moon" not in " ".join(span.to_json() for span in spans_by_name.values())


def test_texts_need_a_journal_that_keeps_them(tmp_path: Path, spans: InMemorySpanExporter) -> None:
    with Runs(tmp_path / "runs.db") as runs, pytest.raises(QueryError, match="values=True"):
        OpenTelemetryJournal(runs.journal, SimpleSpanProcessor(spans), content=True)


def test_a_failure_has_its_type_and_its_message_stays_here(spans: InMemorySpanExporter) -> None:
    @step
    def failing(text: str) -> str:
        raise ValueError(f"secret {text}")

    with Run(journal=OpenTelemetryJournal(None, SimpleSpanProcessor(spans))), pytest.raises(ValueError, match="secret"):
        failing("tide")
    span: Any
    (span,) = spans.get_finished_spans()
    assert (span.status.is_ok, span.attributes["error.type"]) == (False, "ValueError")
    assert "secret" not in span.to_json()


def test_spans_belong_to_the_span_around_them(spans: InMemorySpanExporter) -> None:
    @step
    def double(n: int) -> int:
        return 2 * n

    provider = TracerProvider()
    with provider.get_tracer("own").start_as_current_span("request") as own:
        journal = OpenTelemetryJournal(None, SimpleSpanProcessor(spans))
    with Run(journal=journal):
        double(2)
    span: Any
    (span,) = spans.get_finished_spans()
    assert span.parent.span_id == own.get_span_context().span_id
    assert span.context.trace_id == own.get_span_context().trace_id
