"""Flows of a server, and the threads that run them; a candidate in the shadow of production."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import copy_context
from dataclasses import dataclass
from functools import lru_cache, partial
from random import Random
from time import perf_counter, time
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector
from starlette.types import Receive

from spolia.core.markdown import disarm
from spolia.core.operator import Operator, walk_values
from spolia.core.replacement import replace_parts
from spolia.core.run_context import Event, current_context
from spolia.errors import Cancelled, QueryError, ServerBusy, ServerStopping, StepFailed, UnknownFlow
from spolia.evaluation.creation.feedback import FeedbackQueue
from spolia.journal import Runs
from spolia.journal.cache import Cache
from spolia.journal.trace import Journal
from spolia.models.prompting.stand_in_models import Silent, Unanswered
from spolia.models.protocols import Embedder, LanguageModel, Scorer
from spolia.pre_retrieval.rewrite import Condense
from spolia.run import Budget, Run
from spolia.run.coroutines import Pulse, event_batches
from spolia.run.frame import Frame
from spolia.run.lane import Lane
from spolia.server.keys import KeyHolder, UsageLedger
from spolia.server.replies import answer_reply
from spolia.server.reply_schemas import AnswerReply
from spolia.server.request_threads import RequestThreads
from spolia.services.aliases import ALIASES, CANDIDATE, PRODUCTION, Aliases, Promotion
from spolia.services.jobs import CALLBACK, JobQueue, JobState
from spolia.services.traffic import TrafficLog, read_answers, served_answer
from spolia.stores.corpus import Corpus
from spolia.types import Answer, Query

if TYPE_CHECKING:
    from spolia.services.telemetry import Telemetry

T = TypeVar("T")
RETRY_S = 1.0
"""Seconds between two attempts to warm up."""
FOLLOW_S = 0.5
"""Seconds between two looks at the aliases."""
MAX_CACHED_RESULTS = 1_000
"""Cached results in memory, beside those in the file, so that a server does not grow with the questions."""
LISTEN_S = 0.02
"""Seconds after which the server looks whether a client has left; most replies without a language model come sooner."""


SECONDS = (0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60)


class Metrics:
    """Counts for Prometheus: requests, answers, tokens, cost, clients that left. No names of users, no texts."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self.requests = Counter("spolia_requests", "Requests", ("route", "status"), registry=registry)
        self.seconds = Histogram(
            "spolia_request_seconds", "Until the last byte of a reply", ("route",), registry=registry, buckets=SECONDS
        )
        self.active = Gauge("spolia_active_runs", "Runs of flows in progress", registry=registry)
        self.left = Counter("spolia_clients_left", "Clients that left before the end", registry=registry)
        self.unread = Counter("spolia_clients_not_reading", "Connections closed, since nobody read", registry=registry)
        self.answers = Counter("spolia_answers", "Answers", ("flow", "stop_reason", "abstained"), registry=registry)
        self.degraded = Counter(
            "spolia_degraded_answers", "Answers with a step out of order", ("flow",), registry=registry
        )
        self.cached = Counter(
            "spolia_cached_answers", "Answers with a step from the cache", ("flow",), registry=registry
        )
        self.calls = Counter("spolia_model_calls", "Calls of language models", ("flow",), registry=registry)
        self.errors = Counter(
            "spolia_errors", "Requests that failed, by the code of the error", ("code",), registry=registry
        )
        self.tokens = Counter(
            "spolia_tokens", "Tokens sent to and written by models", ("flow", "kind"), registry=registry
        )
        self.cost = Counter("spolia_cost_usd", "Spent on models", ("flow",), registry=registry)
        for metric in (self.requests, self.seconds, self.answers):  # `labels` locks and checks each time
            metric.labels = lru_cache(1024)(metric.labels)  # type: ignore[method-assign, assignment]

    def count_answer(self, flow: str, answer: Answer, lane: Lane) -> None:
        self.answers.labels(flow, answer.stop_reason, str(answer.abstained).lower()).inc()
        if lane.reasons:
            self.degraded.labels(flow).inc()
        if lane.cached:
            self.cached.labels(flow).inc()
        usage = lane.spent
        if usage.calls:
            self.calls.labels(flow).inc(usage.calls)
            self.tokens.labels(flow, "input").inc(usage.input_tokens)
            self.tokens.labels(flow, "output").inc(usage.output_tokens)
            self.cost.labels(flow).inc(usage.cost_usd)


class JobCounts(Collector):
    """Counts of document changes and callbacks by state, read when Prometheus asks."""

    def __init__(self, queue: JobQueue) -> None:
        self.queue = queue

    def collect(self) -> Iterator[GaugeMetricFamily]:
        counts = GaugeMetricFamily("spolia_jobs", "Changes of documents, and callbacks", labels=("queue", "state"))
        ages = GaugeMetricFamily("spolia_oldest_job_seconds", "Age of the oldest that has not ended", labels=("queue",))
        for queue, name in (("", "documents"), (CALLBACK, "callbacks")):
            job_counts, oldest_s = self.queue.load(queue)
            for state in get_args(JobState):
                counts.add_metric((name, state), job_counts.get(state, 0))
            ages.add_metric((name,), oldest_s)
        yield counts
        yield ages


class ClientLeft(Exception):
    """Sign that the client has left and nobody waits for the answer any more."""


@dataclass(frozen=True)
class ServedFlow:
    """A flow that is served: a model of the API.

    Args:
        name: of the model.
        answer: the flow; with a step that answers where it only finds passages.
        search: what finds passages, or an answer with its evidence.
        promotion: what it is where `name` is an alias.
    """

    name: str
    answer: Operator[Query, Answer]
    search: Operator[Query, Any]
    promotion: Promotion | None = None

    @property
    def version(self) -> str:
        """Return the beginning of the SHA-256 of a promoted file, else the name of the flow behind an alias."""
        return "" if self.promotion is None else self.promotion.sha256[:12] or self.promotion.name


def make_conversational(flow: Operator[Query, Answer], llm: LanguageModel | None = None) -> Operator[Query, Answer]:
    """Return the flow after a step that makes a follow-up question standalone, by the flow's own language model or else
    `llm`. A flow without a model, or with such a step, stays as it is."""
    parts = list(walk_values(flow))
    model = next((part for part in parts if isinstance(part, LanguageModel)), llm)
    return flow if model is None or any(isinstance(part, Condense) for part in parts) else Condense(model) >> flow


DAY_S = 86_400.0
MAX_WAITING = 4
"""Questions that wait for the candidate; others that come then are left out."""


class Shadow:
    """Queue that asks a candidate a share of the questions that production has answered; nobody waits for it.

    One question at a time, with the access rights of its user, without a cache.

    Args:
        journal: where the answers go.
        share: of the questions, 0 to 1.
        calls: of language models in any 24 hours, at most, also after a restart.
    """

    def __init__(self, journal: Journal, share: float, calls: int) -> None:
        self.journal, self.share, self.calls = journal, share, calls
        self.traffic = TrafficLog(journal)
        self._random, self._waiting = Random(), 0
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="spolia-shadow")
        # What an earlier process has asked counts for the budget too.
        past_answers = read_answers(journal, time() - DAY_S)
        self._spent = deque((answer.started, answer.calls) for answer in past_answers if answer.shadow_of)

    def offer(self, flow: Operator[Query, Answer], version: str, run: Run, query: Query) -> None:
        """Ask the candidate too, if chance, the queue and the budget allow it."""
        if (
            self._waiting < MAX_WAITING
            and self._random.random() < self.share
            and (calls_left := self._calls_left()) > 0
        ):
            self._waiting += 1
            self._pool.submit(self._ask_candidate, flow, version, run.id, tuple(run.principals), query, calls_left)

    def _calls_left(self) -> int:
        since = time() - DAY_S
        while self._spent and self._spent[0][0] < since:
            self._spent.popleft()
        return self.calls - sum(calls for _, calls in self._spent)

    def _ask_candidate(
        self,
        flow: Operator[Query, Answer],
        version: str,
        shadowed_run: str,
        principals: tuple[str, ...],
        query: Query,
        calls_left: int,
    ) -> None:
        began = perf_counter()
        try:
            with (
                Run(groups=principals, journal=self.journal, budget=Budget(calls=calls_left), threads=1) as run,
                run.lane() as lane,
            ):
                try:
                    answer = flow(query)
                except Exception as error:  # a flow may raise anything; a failure counts as no answer
                    logging.getLogger(__name__).warning("The candidate failed: %s", type(error).__name__)
                    answer = Answer("", stop_reason="error")
            seconds = perf_counter() - began
            self._spent.append((time(), run.actual_usage.calls))
            if not run.exhausted:  # an answer that the budget has cut says nothing of the candidate
                self.traffic.add(served_answer(CANDIDATE, version, run, lane, query, answer, seconds, shadowed_run))
        except Cancelled:
            pass  # the server is stopping: a question without an answer says nothing of the candidate
        finally:
            self._waiting -= 1

    def close(self) -> None:
        """Drop the waiting questions, and finish the one in progress."""
        self._pool.shutdown(cancel_futures=True)
        self.traffic.hand_over()


class Service:
    """The flows of a store, each run for its holder.

    Args:
        corpus: the store.
        flows: what is served; the first one is asked where a request names none.
        search: the flow that finds passages where a request names none.
        runs: where traces and cached results go.
        max_concurrent: requests that are worked on together; the next one gets an error.
        threads: of each run.
        embedder: what embeds texts for clients.
        scorer: what reranks documents for clients.
        feedback: where what users say of answers goes.
        load: makes the flow of an alias; without it the aliases of the store are not served.
        shadow: asks the candidate what production was asked.
        ledger: counts what keys use in a day, for their quotas.
        telemetry: exports the steps of each request.
        cached: whether an answer may come from the cache of `runs`.
        live_markdown: send images, HTML and links of answers as they are; by default `disarm` makes them inert.
    """

    def __init__(
        self,
        corpus: Corpus,
        flows: Iterable[ServedFlow],
        search: ServedFlow,
        *,
        runs: Runs | None = None,
        max_concurrent: int = 256,
        threads: int = 8,
        embedder: Embedder | None = None,
        scorer: Scorer | None = None,
        feedback: FeedbackQueue | None = None,
        load: Callable[[str, Promotion], ServedFlow] | None = None,
        shadow: Shadow | None = None,
        ledger: UsageLedger | None = None,
        telemetry: Telemetry | None = None,
        live_markdown: bool = False,
        cached: bool = True,
    ) -> None:
        self.live_markdown = live_markdown
        self.corpus, self.search_flow, self.max_concurrent, self.threads = corpus, search, max_concurrent, threads
        self.flows = {flow.name: flow for flow in flows}
        self.journal = None if runs is None else runs.journal
        self.traffic = None if runs is None else TrafficLog(runs.journal)
        self.cache = None if runs is None or not cached else runs.cache
        self.embedder, self.scorer, self.metrics = embedder, scorer, Metrics()
        self.feedback, self.load, self.shadow, self.ledger = feedback, load, shadow, ledger
        self.telemetry = telemetry
        self._began: dict[str, float] = {}
        self._runs: dict[str, Run] = {}
        self.is_stopping = False
        self.aliases: dict[str, ServedFlow] = {}
        self.unready = "It is warming up."
        self.metrics.active.set_function(lambda: self._active)
        self._active = 0
        self._pulse: Pulse | None = None
        self._request_threads = RequestThreads()  # `run` bounds their number

    def flow(self, name: str) -> ServedFlow:
        """Return the flow of this name; without a name that of `production`, else the first one.

        Raises:
            UnknownFlow: and which there are.
        """
        served = self.served_flows
        flow = served.get(name) if name else next(iter(served.values()))
        if flow is None:
            raise UnknownFlow(f"The model {name!r:.80} does not exist. Write one of {', '.join(served)}.")
        return flow

    @property
    def served_flows(self) -> dict[str, ServedFlow]:
        """Return all flows by name: production, the flows, then the candidate, which answers only those who name it."""
        flows = {**self.aliases, **self.flows}
        return {name: flows[name] for name in sorted(flows, key=(PRODUCTION, *self.flows, CANDIDATE).index)}

    @contextmanager
    def run(
        self, holder: KeyHolder, journal: Journal | None = None, cache: Cache | Literal["own"] | None = "own"
    ) -> Iterator[Run]:
        """Open a run for one request of this holder, and close it afterwards.

        Args:
            cache: that of the server by default.

        Raises:
            ServerBusy: as many requests as may be are worked on.
        """
        if self._active >= self.max_concurrent:
            raise ServerBusy(f"{self._active} requests are worked on, which is the limit. Ask again.")
        self._active += 1  # without a lock: only the event loop's thread changes it
        options: dict[str, Any] = {"principal": holder.principal, "groups": holder.groups, "threads": self.threads}
        budget = None if self.ledger is None else self.ledger.limiter(holder.name, holder.daily)
        cache = self.cache if cache == "own" else cache
        run = Run(**options, journal=journal or self.request_journal(), cache=cache, budget=budget)
        self._began[run.id] = perf_counter()
        self._runs[run.id] = run
        try:
            yield run
        finally:
            self._active -= 1
            del self._began[run.id], self._runs[run.id]
            run.close()

    def stop(self) -> None:
        """End all requests in progress with an error that says why."""
        self.is_stopping = True
        for run in list(self._runs.values()):
            run.cancel()

    def request_cache(self, headers: Mapping[str, str], seed: int | None = None) -> Cache | None:
        """Return the cache of a request: None if it asks for a fresh answer, a separate one for a seed."""
        directives = {directive.strip().lower() for directive in headers.get("cache-control", "").split(",")}
        if self.cache is None or not directives.isdisjoint(("no-cache", "no-store")):
            return None
        return self.cache if seed is None else self.cache.seeded(seed)

    def request_journal(self) -> Journal | None:
        """Return the journal for the spans of one request."""
        return self.journal if self.telemetry is None else self.telemetry.journal(self.journal)

    async def run_in_thread(self, run: Run, work: Callable[[], T], receive: Receive) -> T:
        """Return the result of `work`, which runs in a thread; a client that leaves stops it.

        Raises:
            ClientLeft: it has stopped.
            ServerStopping: the server has.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        with self.stop_if_client_leaves(run, receive):
            self._request_threads.submit(partial(_settle, work, future, loop))  # half the cost of `run_in_executor`
            try:
                return await future
            except Cancelled as error:
                raise (
                    ServerStopping("The server is stopping. Ask again.") if self.is_stopping else ClientLeft
                ) from error

    def events(self, flow: ServedFlow, query: Query) -> AsyncGenerator[list[Event], None]:
        """Yield the events of a flow that answers in a thread of this server; each batch holds all that are ready."""
        frame = current_context.get()
        assert isinstance(frame, Frame)
        # Made when a loop is there, with the first stream.
        self._pulse = self._pulse or Pulse(asyncio.get_running_loop())
        return event_batches(
            frame,
            lambda inner: inner.step(flow.answer, query),
            copy_context(),
            self._request_threads.submit,
            self._pulse,
        )

    @contextmanager
    def stop_if_client_leaves(self, run: Run, receive: Receive) -> Iterator[None]:
        """Stop the run if the client leaves while inside, from `LISTEN_S` on."""
        listening: asyncio.Future[None] | None = None

        def stop(done: asyncio.Future[None]) -> None:
            if not done.cancelled():
                self.metrics.left.inc()
                run.cancel()

        def listen() -> None:
            nonlocal listening
            listening = asyncio.ensure_future(_wait_for_disconnect(receive))
            listening.add_done_callback(stop)

        timer = asyncio.get_running_loop().call_later(LISTEN_S, listen)
        try:
            yield
        except BaseException:  # also a cancelled request: its thread would go on working
            run.cancel()
            raise
        finally:
            timer.cancel()
            if listening is not None:
                listening.cancel()

    def reply(self, flow: ServedFlow, run: Run, lane: Lane, query: Query, answer: Answer) -> AnswerReply:
        """Return an answer as plain data; count it, and perhaps ask the candidate too."""
        self.metrics.count_answer(flow.name, answer, lane)
        if self.traffic is not None:
            seconds = perf_counter() - self._began[run.id]
            self.traffic.add(served_answer(flow.name, flow.version, run, lane, query, answer, seconds))
        if self.shadow is not None and flow.name == PRODUCTION and (candidate := self.aliases.get(CANDIDATE)):
            self.shadow.offer(candidate.answer, candidate.version, run, query)
        answer = answer.but(text=self.client_text(answer.text))
        return answer_reply(answer, self.corpus, run, lane, flow.answer, question=query.question, name=flow.name)

    def client_text(self, text: str) -> str:
        """Return a text of documents or models as clients get it."""
        return text if self.live_markdown else disarm(text)

    async def warm_up(self) -> None:
        """Run every flow once without asking its language models, so that the first question waits for no build or
        load; retry until that succeeds. Then follow the aliases."""
        aliases, state = Aliases(self.corpus.backend.folder), None
        state = await self._follow_aliases(aliases, state)
        for flow in (self.search_flow, *self.flows.values()):
            while self.unready:
                try:
                    await asyncio.to_thread(_run_once, flow)
                    break
                except Exception as error:  # a flow may raise anything; what it says is for the log alone
                    logging.getLogger(__name__).warning("%s cannot run yet: %s", flow.name, error)
                    self.unready = f"{flow.name} cannot run yet: {type(error).__name__}."
                    await asyncio.sleep(RETRY_S)
        self.unready = ""
        while self.load is not None:
            await asyncio.sleep(FOLLOW_S)
            state = await self._follow_aliases(aliases, state)

    async def _follow_aliases(self, aliases: Aliases, state: object) -> object:
        """Serve the flows that the aliases name now, each as soon as it has run once. If one cannot run, the flow
        before it stays."""
        if self.load is None or (now := aliases.state()) == state:
            return state
        try:
            current = await asyncio.to_thread(aliases.current)
        except QueryError as error:
            logging.getLogger(__name__).warning("%s", error)
            return now
        flows = {}
        for alias in filter(current.__contains__, ALIASES):
            old_flow = self.aliases.get(alias)
            try:
                flows[alias] = await asyncio.to_thread(self._load_flow, alias, current[alias], old_flow)
            except Exception as error:  # as for `warm_up`
                logging.getLogger(__name__).warning("%s stays as it was: %s", alias, error)
                if old_flow is not None:
                    flows[alias] = old_flow
        self.aliases = flows
        return now

    def _load_flow(self, alias: str, promotion: Promotion, old_flow: ServedFlow | None) -> ServedFlow:
        if old_flow is not None and old_flow.promotion == promotion:
            return old_flow
        assert self.load is not None
        flow = self.load(alias, promotion)
        _run_once(flow)
        return flow


def _run_once(flow: ServedFlow) -> None:
    def silence_model(value: Any) -> Any:
        return Silent(value, lambda *args: None) if isinstance(value, LanguageModel) else value

    # The models are silent, so a flow may end without an answer: by then it has loaded what it needs.
    with Run(), suppress(Unanswered, StepFailed):
        replace_parts(flow.answer, silence_model)(Query("warm-up"))


def _settle(work: Callable[[], T], future: asyncio.Future[T], loop: asyncio.AbstractEventLoop) -> Callable[[], None]:
    """Do the work; return a function that gives the result to the future in its loop."""
    settle: Callable[[], None]
    try:
        settle = partial(future.set_result, work())
    except BaseException as error:
        settle = partial(future.set_exception, error)

    def arrive() -> None:
        if not future.cancelled():  # the client has left
            settle()

    def tell() -> None:
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(arrive)

    return tell


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
