"""Counts for Prometheus: requests, answers, tokens, cost, clients that left. No names of users, no texts."""

from __future__ import annotations

from functools import lru_cache

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector

from spolia.run.lane import Lane
from spolia.types import Answer

SECONDS = (0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60)


class Metrics:
    """The counts of one server."""

    def __init__(self) -> None:
        self.registry = to = CollectorRegistry()
        ProcessCollector(registry=to)
        self.requests = Counter("spolia_requests", "Requests", ("route", "status"), registry=to)
        self.seconds = Histogram(
            "spolia_request_seconds", "Until the last byte of a reply", ("route",), registry=to, buckets=SECONDS
        )
        self.active = Gauge("spolia_active_runs", "Runs of flows in progress", registry=to)
        self.left = Counter("spolia_clients_left", "Clients that left before the end", registry=to)
        self.unread = Counter("spolia_clients_not_reading", "Connections closed, since nobody read", registry=to)
        self.answers = Counter("spolia_answers", "Answers", ("flow", "stop_reason", "abstained"), registry=to)
        self.degraded = Counter("spolia_degraded_answers", "Answers with a step out of order", ("flow",), registry=to)
        self.tokens = Counter("spolia_tokens", "Tokens sent to and written by models", ("flow", "kind"), registry=to)
        self.cost = Counter("spolia_cost_usd", "Spent on models", ("flow",), registry=to)
        for one in (self.requests, self.seconds, self.answers):  # `labels` locks and checks each time
            one.labels = lru_cache(1024)(one.labels)  # type: ignore[method-assign, assignment]

    def answered(self, flow: str, answer: Answer, lane: Lane) -> None:
        self.answers.labels(flow, answer.stop_reason, str(answer.abstained).lower()).inc()
        if lane.reasons:
            self.degraded.labels(flow).inc()
        spent = lane.spent
        if spent.calls:
            self.tokens.labels(flow, "input").inc(spent.input_tokens)
            self.tokens.labels(flow, "output").inc(spent.output_tokens)
            self.cost.labels(flow).inc(spent.cost_usd)
