"""The flows of a server, and the threads that run them; a candidate in the shadow of production."""

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
from spolia.core.operator import Operator, inside
from spolia.core.replacement import replaced
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
from spolia.run.coroutines import Pulse, lots
from spolia.run.frame import Frame
from spolia.run.lane import Lane
from spolia.server.keys import KeyHolder, UsageLedger
from spolia.server.replies import answer_reply
from spolia.server.reply_schemas import AnswerReply
from spolia.server.request_threads import RequestThreads
from spolia.services.aliases import ALIASES, CANDIDATE, PRODUCTION, Aliases, Promotion
from spolia.services.jobs import CALLBACK, JobQueue, JobState
from spolia.services.traffic import TrafficLog, answers, served_answer
from spolia.stores.corpus import Corpus
from spolia.types import Answer, Query

if TYPE_CHECKING:
    from spolia.services.telemetry import Telemetry

T = TypeVar("T")
RETRY_S = 1.0
"""Seconds between two attempts to warm up."""
FOLLOW_S = 0.5
"""Seconds between two looks at the aliases."""
HELD = 1_000
"""Cached results in memory, beside those in the file, so that a server does not grow with the questions."""
LISTEN_S = 0.02
"""Seconds after which the server looks whether a client has left; most replies without a language model come sooner."""


SECONDS = (0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60)


class Metrics:
    """Counts for Prometheus: requests, answers, tokens, cost, clients that left. No names of users, no texts."""

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
        self.cached = Counter("spolia_cached_answers", "Answers with a step from the cache", ("flow",), registry=to)
        self.calls = Counter("spolia_model_calls", "Calls of language models", ("flow",), registry=to)
        self.errors = Counter("spolia_errors", "Requests that failed, by the code of the error", ("code",), registry=to)
        self.tokens = Counter("spolia_tokens", "Tokens sent to and written by models", ("flow", "kind"), registry=to)
        self.cost = Counter("spolia_cost_usd", "Spent on models", ("flow",), registry=to)
        for one in (self.requests, self.seconds, self.answers):  # `labels` locks and checks each time
            one.labels = lru_cache(1024)(one.labels)  # type: ignore[method-assign, assignment]

    def answered(self, flow: str, answer: Answer, lane: Lane) -> None:
        self.answers.labels(flow, answer.stop_reason, str(answer.abstained).lower()).inc()
        if lane.reasons:
            self.degraded.labels(flow).inc()
        if lane.cached:
            self.cached.labels(flow).inc()
        spent = lane.spent
        if spent.calls:
            self.calls.labels(flow).inc(spent.calls)
            self.tokens.labels(flow, "input").inc(spent.input_tokens)
            self.tokens.labels(flow, "output").inc(spent.output_tokens)
            self.cost.labels(flow).inc(spent.cost_usd)


class JobCounts(Collector):
    """Changes of documents, and callbacks, by state, when Prometheus asks."""

    def __init__(self, queue: JobQueue) -> None:
        self.queue = queue

    def collect(self) -> Iterator[GaugeMetricFamily]:
        counts = GaugeMetricFamily("spolia_jobs", "Changes of documents, and callbacks", labels=("queue", "state"))
        ages = GaugeMetricFamily("spolia_oldest_job_seconds", "Age of the oldest that has not ended", labels=("queue",))
        for queue, name in (("", "documents"), (CALLBACK, "callbacks")):
            found, oldest_s = self.queue.load(queue)
            for state in get_args(JobState):
                counts.add_metric((name, state), found.get(state, 0))
            ages.add_metric((name,), oldest_s)
        yield counts
        yield ages


class ClientLeft(Exception):
    """Nobody waits for the answer any more."""


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
        """The beginning of the SHA-256 of a promoted file, else the name of the flow behind an alias."""
        return "" if self.promotion is None else self.promotion.sha256[:12] or self.promotion.name


def conversational(flow: Operator[Query, Answer], llm: LanguageModel | None = None) -> Operator[Query, Answer]:
    """The flow after a step that makes a follow-up question standalone, asked of the flow's own language model or
    else of `llm`. A flow without a model, or with such a step, is returned as it is."""
    parts = list(inside(flow))
    asked = next((one for one in parts if isinstance(one, LanguageModel)), llm)
    return flow if asked is None or any(isinstance(one, Condense) for one in parts) else Condense(asked) >> flow


DAY_S = 86_400.0
WAITING = 4
"""Questions that wait for the candidate; others that come then are left out."""


class Shadow:
    """Asks a candidate a share of the questions that production has answered; nobody waits for it.

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
        before = answers(journal, time() - DAY_S)
        self._spent = deque((one.started, one.calls) for one in before if one.shadow_of)

    def offer(self, flow: Operator[Query, Answer], version: str, run: Run, query: Query) -> None:
        """Ask the candidate too, if the lot, the queue and the budget allow it."""
        if self._waiting < WAITING and self._random.random() < self.share and (left := self._left()) > 0:
            self._waiting += 1
            self._pool.submit(self._ask, flow, version, run.id, tuple(run.principals), query, left)

    def _left(self) -> int:
        since = time() - DAY_S
        while self._spent and self._spent[0][0] < since:
            self._spent.popleft()
        return self.calls - sum(calls for _, calls in self._spent)

    def _ask(
        self, flow: Operator[Query, Answer], version: str, of: str, who: tuple[str, ...], query: Query, left: int
    ) -> None:
        began = perf_counter()
        try:
            with Run(groups=who, journal=self.journal, budget=Budget(calls=left), threads=1) as run, run.lane() as lane:
                try:
                    answer = flow(query)
                except Exception as error:  # a flow may raise anything; a failure counts as no answer
                    logging.getLogger(__name__).warning("The candidate failed: %s", type(error).__name__)
                    answer = Answer("", stop_reason="error")
            seconds = perf_counter() - began
            self._spent.append((time(), run.spent.calls))
            if not run.exhausted:  # an answer that the budget has cut says nothing of the candidate
                self.traffic.add(served_answer(CANDIDATE, version, run, lane, query, answer, seconds, of))
        except Cancelled:
            pass  # the server is stopping: a question without an answer says nothing of the candidate
        finally:
            self._waiting -= 1

    def close(self) -> None:
        """Leave out what waits, and end with the question in progress."""
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
        self.corpus, self.searching, self.max_concurrent, self.threads = corpus, search, max_concurrent, threads
        self.flows = {one.name: one for one in flows}
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
        """The flow of this name; for none that of `production`, else the first one.

        Raises:
            UnknownFlow: and which there are.
        """
        served = self.served
        found = served.get(name) if name else next(iter(served.values()))
        if found is None:
            raise UnknownFlow(f"The model {name!r:.80} does not exist. Write one of {', '.join(served)}.")
        return found

    @property
    def served(self) -> dict[str, ServedFlow]:
        """All flows by name: production, the flows, the candidate, which answers only those who name it."""
        found = {**self.aliases, **self.flows}
        return {name: found[name] for name in sorted(found, key=(PRODUCTION, *self.flows, CANDIDATE).index)}

    @contextmanager
    def run(
        self, holder: KeyHolder, journal: Journal | None = None, cache: Cache | Literal["own"] | None = "own"
    ) -> Iterator[Run]:
        """A run for one request of this holder; closed with it.

        Args:
            cache: that of the server by default.

        Raises:
            ServerBusy: as many requests as may be are worked on.
        """
        if self._active >= self.max_concurrent:
            raise ServerBusy(f"{self._active} requests are worked on, which is the limit. Ask again.")
        self._active += 1
        who: dict[str, Any] = {"principal": holder.principal, "groups": holder.groups, "threads": self.threads}
        budget = None if self.ledger is None else self.ledger.limiter(holder.name, holder.daily)
        cache = self.cache if cache == "own" else cache
        run = Run(**who, journal=journal or self.request_journal(), cache=cache, budget=budget)
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
        """The cache of a request: none if it asks for a fresh answer, one of its own for a seed."""
        wishes = {one.strip().lower() for one in headers.get("cache-control", "").split(",")}
        if self.cache is None or not wishes.isdisjoint(("no-cache", "no-store")):
            return None
        return self.cache if seed is None else self.cache.seeded(seed)

    def request_journal(self) -> Journal | None:
        """Where the spans of one request go."""
        return self.journal if self.telemetry is None else self.telemetry.journal(self.journal)

    async def called(self, run: Run, work: Callable[[], T], receive: Receive) -> T:
        """What `work` gives in a thread; a client that leaves stops it.

        Raises:
            ClientLeft: it has stopped.
            ServerStopping: the server has.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        with self.stopped_when_left(run, receive):
            self._request_threads.submit(partial(_settle, work, future, loop))  # half the cost of `run_in_executor`
            try:
                return await future
            except Cancelled as error:
                raise (
                    ServerStopping("The server is stopping. Ask again.") if self.is_stopping else ClientLeft
                ) from error

    def events(self, flow: ServedFlow, query: Query) -> AsyncGenerator[list[Event], None]:
        """What happens while a flow answers in a thread of this server; in lots, all that is ready."""
        frame = current_context.get()
        assert isinstance(frame, Frame)
        self._pulse = self._pulse or Pulse(asyncio.get_running_loop())
        return lots(
            frame,
            lambda inner: inner.step(flow.answer, query),
            copy_context(),
            self._request_threads.submit,
            self._pulse,
        )

    @contextmanager
    def stopped_when_left(self, run: Run, receive: Receive) -> Iterator[None]:
        """While inside, a client that leaves stops the run, from `LISTEN_S` on."""
        listening: asyncio.Future[None] | None = None

        def stop(done: asyncio.Future[None]) -> None:
            if not done.cancelled():
                self.metrics.left.inc()
                run.cancel()

        def listen() -> None:
            nonlocal listening
            listening = asyncio.ensure_future(_left(receive))
            listening.add_done_callback(stop)

        timer = asyncio.get_running_loop().call_later(LISTEN_S, listen)
        try:
            yield
        except BaseException:
            run.cancel()
            raise
        finally:
            timer.cancel()
            if listening is not None:
                listening.cancel()

    def reply(self, flow: ServedFlow, run: Run, lane: Lane, query: Query, answer: Answer) -> AnswerReply:
        """An answer as plain data; it is counted, and the candidate may be asked too."""
        self.metrics.answered(flow.name, answer, lane)
        if self.traffic is not None:
            seconds = perf_counter() - self._began[run.id]
            self.traffic.add(served_answer(flow.name, flow.version, run, lane, query, answer, seconds))
        if self.shadow is not None and flow.name == PRODUCTION and (other := self.aliases.get(CANDIDATE)):
            self.shadow.offer(other.answer, other.version, run, query)
        answer = answer.but(text=self.shown(answer.text))
        return answer_reply(answer, self.corpus, run, lane, flow.answer, question=query.question, name=flow.name)

    def shown(self, text: str) -> str:
        """Return a text of documents or models as clients get it."""
        return text if self.live_markdown else disarm(text)

    async def warm_up(self) -> None:
        """Run every flow once, without asking its language models: what is built or loaded by the first question is
        there then. Tries again until that succeeds. Then goes on to follow the aliases."""
        aliases, state = Aliases(self.corpus.backend.folder), None
        state = await self._follow(aliases, state)
        for one in (self.searching, *self.flows.values()):
            while self.unready:
                try:
                    await asyncio.to_thread(_warm, one)
                    break
                except Exception as error:  # a flow may raise anything; what it says is for the log alone
                    logging.getLogger(__name__).warning("%s cannot run yet: %s", one.name, error)
                    self.unready = f"{one.name} cannot run yet: {type(error).__name__}."
                    await asyncio.sleep(RETRY_S)
        self.unready = ""
        while self.load is not None:
            await asyncio.sleep(FOLLOW_S)
            state = await self._follow(aliases, state)

    async def _follow(self, aliases: Aliases, state: object) -> object:
        """Serve what the aliases stand for now, as soon as it has run once. What cannot run is not served: the flow
        before it is."""
        if self.load is None or (now := aliases.state()) == state:
            return state
        try:
            current = await asyncio.to_thread(aliases.current)
        except QueryError as error:
            logging.getLogger(__name__).warning("%s", error)
            return now
        found = {}
        for alias in filter(current.__contains__, ALIASES):
            before = self.aliases.get(alias)
            try:
                found[alias] = await asyncio.to_thread(self._loaded, alias, current[alias], before)
            except Exception as error:  # as for `warm_up`
                logging.getLogger(__name__).warning("%s stays as it was: %s", alias, error)
                if before is not None:
                    found[alias] = before
        self.aliases = found
        return now

    def _loaded(self, alias: str, to: Promotion, before: ServedFlow | None) -> ServedFlow:
        if before is not None and before.promotion == to:
            return before
        assert self.load is not None
        flow = self.load(alias, to)
        _warm(flow)
        return flow


def _warm(flow: ServedFlow) -> None:
    def silent(value: Any) -> Any:
        return Silent(value, lambda *asked: None) if isinstance(value, LanguageModel) else value

    with Run(), suppress(Unanswered, StepFailed):
        replaced(flow.answer, silent)(Query("warm-up"))


def _settle(work: Callable[[], T], future: asyncio.Future[T], loop: asyncio.AbstractEventLoop) -> Callable[[], None]:
    """Do the work; return what gives the result to the future in its loop."""
    settle: Callable[[], None]
    try:
        settle = partial(future.set_result, work())
    except BaseException as error:
        settle = partial(future.set_exception, error)

    def arrive() -> None:
        if not future.cancelled():
            settle()

    def tell() -> None:
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(arrive)

    return tell


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
