"""`spolia serve`: flows over HTTP."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from spolia.cli import options
from spolia.cli.commands.keys import KEYS
from spolia.cli.destinations import tell_of_models
from spolia.cli.exit_codes import Exit
from spolia.cli.flow_parts import Parts, answering, flow_of, is_file, parts_of, with_sources
from spolia.cli.measured_destinations import tell_of_measured
from spolia.cli.model_profile import profile_of
from spolia.cli.models import model_at
from spolia.cli.options import MAIN, LiveMarkdown, RerankOptions
from spolia.cli.parameters import argument, option
from spolia.cli.readers import readers_of, redactor_of
from spolia.cli.runs import FEEDBACK, RUNS, THREADS
from spolia.cli.screen import Screen
from spolia.errors import QueryError, installed
from spolia.evaluation.creation.feedback import FeedbackQueue
from spolia.journal import Runs
from spolia.journal.values import hiding
from spolia.server.keys import ApiKeys, DailyQuota, UsageLedger
from spolia.services.aliases import ALIASES, Promotion
from spolia.services.documents import Documents
from spolia.services.workers import LaunchCommand, LocalProcesses, SharedWorkers, watched

if TYPE_CHECKING:
    from spolia.server.service import ServedFlow
    from spolia.services.telemetry import Telemetry

KeysFile = Annotated[Path | None, option("--keys FILE", KEYS)]


@dataclass(frozen=True)
class ServeOptions(RerankOptions):
    """Options of the served flows."""

    store: options.StorePath
    flows: Annotated[list[str] | None, argument("FLOW", "Flows to serve as models; by default naive.")] = None
    llm: options.ModelUrl = ""
    model: options.ModelName = ""
    think: options.Think = 0
    access: options.Access = None
    group: Annotated[str, option("--group NAME", "The node group to search.")] = MAIN
    web: options.Web = None
    known: options.Known = None
    allow_env: options.AllowEnv = None
    build_groups: options.BuildGroups = False
    prompts: options.OwnPrompts = None
    keep_values: options.KeepValues = False
    redact: options.Redact = None
    json: options.AsJson = False


@dataclass(frozen=True)
class TokenOptions:
    """Options of an identity provider, whose tokens are keys."""

    oidc_issuer: Annotated[
        str, option("--oidc-issuer URL", "OpenID Connect provider; its tokens are accepted as keys.")
    ] = ""
    oidc_audience: Annotated[str, option("--oidc-audience NAME", "Audience that its tokens must name.")] = ""
    oidc_user: Annotated[str, option("--oidc-user CLAIM", "Claim with the user, as access lists name it.")] = "sub"
    oidc_groups: Annotated[str, option("--oidc-groups CLAIM", "Claim with the groups, a list.")] = "groups"
    oidc_requests_per_minute: Annotated[
        int, option("--oidc-requests-per-minute", "Limit on requests of each of its users; 0 for none.", min=0)
    ] = 0
    oidc_tokens_per_day: Annotated[
        int, option("--oidc-tokens-per-day", "Limit on model tokens of each of its users; 0 for none.", min=0)
    ] = 0

    def refuse_half(self) -> None:
        if bool(self.oidc_issuer) != bool(self.oidc_audience):
            raise QueryError("Tokens of a provider need both: --oidc-issuer URL and --oidc-audience NAME.")

    def accepted(self, others: "ApiKeys") -> "ApiKeys":
        """Its tokens beside other keys."""
        from spolia.server.tokens import IssuedTokens

        daily = DailyQuota(tokens=self.oidc_tokens_per_day)
        how: dict[str, Any] = {"user": self.oidc_user, "groups": self.oidc_groups, "daily": daily}
        at = self.oidc_issuer, self.oidc_audience
        return IssuedTokens(others, *at, per_minute=self.oidc_requests_per_minute, **how)


@dataclass(frozen=True)
class PlatformOptions:
    """Options for browsers, proxies and collectors of logs."""

    cors_origin: Annotated[
        list[str] | None,
        option("--cors-origin ORIGIN", "Pages whose scripts may ask, as https://app.example.org; repeatable."),
    ] = None
    root_path: Annotated[str, option("--root-path PATH", "Path below which a proxy has this server, as /spolia.")] = ""
    json_logs: Annotated[bool, option("--json-logs", "Write logs, with one line a request, as JSON to stderr.")] = False
    cache_answers: Annotated[
        bool, option("--cache-answers/--no-cache-answers", "Give equal questions of equal readers the cached answer.")
    ] = True

    def refuse_half(self) -> None:
        if self.root_path and not self.root_path.startswith("/"):
            raise QueryError(f"--root-path {self.root_path!r:.80} is not a path. Write one that begins with /.")


@dataclass(frozen=True)
class UploadOptions:
    """Options of the documents that users send."""

    documents: Annotated[bool, option("--documents", "Take documents from users at /v1/documents and index them.")] = (
        False
    )
    folder: Annotated[
        list[str] | None, option("--folder DIR", "A folder whose files users may add by their path; repeatable.")
    ] = None
    scan: Annotated[
        float, option("--scan SECONDS", "Compare these folders with the documents so often; 0 for never.", min=0)
    ] = 0.0
    callback_host: Annotated[
        list[str] | None,
        option("--callback-host NAME", "A host for callbacks beside those at public https addresses; repeatable."),
    ] = None
    workers: Annotated[
        int | None,
        option(
            "--workers",
            "Worker processes that read and embed these documents; 0 if you start them yourself with `spolia worker`.",
            min=0,
        ),
    ] = None
    launch: Annotated[
        str, option("--launch COMMAND", "Command that starts each of them elsewhere: `srun spolia {arguments}`.")
    ] = ""
    originals: Annotated[
        bool,
        option(
            "--originals/--no-originals",
            "Keep the bytes of these documents, to make them again, for pictures of pages and exports. With --redact "
            "they are never kept.",
        ),
    ] = True

    def refuse_half(self) -> None:
        if self.folder and not self.documents:
            raise QueryError("--folder is for documents of users. Write --documents, too.")
        if self.scan and not self.folder:
            raise QueryError("--scan compares folders with documents. Write --folder DIR, too.")
        if self.workers is not None and not self.documents:
            raise QueryError("--workers read what users send. Add --documents.")

    @contextmanager
    def taken(self, parts: "Parts", given: ServeOptions) -> "Iterator[Documents | None]":
        """While inside, documents are taken, and workers read and embed them."""
        if not self.documents:
            yield None
            return
        found = Documents(
            parts.chunks.corpus, folders=self.folder or (), scan_s=self.scan, callback_hosts=self.callback_host or (),
            readers=readers_of(given.known, given.redact), keeps_originals=self.originals and not given.redact,
            known=[one for one in (*parts.known, parts.embedder) if one is not None],
        )  # fmt: skip
        with nullcontext() if self.workers is None else _workers(found, self.workers, self.launch, given):
            yield found


@dataclass(frozen=True)
class SpanOptions:
    """Options of OpenTelemetry."""

    otel: Annotated[
        str, option("--otel URL", "OpenTelemetry collector that gets a span of each step, as http://localhost:4318.")
    ] = ""
    otel_content: Annotated[
        bool, option("--otel-content", "Also export texts: questions, prompts, passages, answers. Needs --keep-values.")
    ] = False

    def refuse_half(self, given: ServeOptions) -> None:
        if self.otel_content and not (self.otel and given.keep_values):
            raise QueryError(
                "--otel-content exports texts that the journal keeps. Write --otel URL and --keep-values, too."
            )

    @contextmanager
    def exported(self) -> "Iterator[Telemetry | None]":
        """Export spans while inside; gives None without a collector."""
        if not self.otel:
            yield None
            return
        with installed("otel", "opentelemetry-sdk or its OTLP exporter", "`spolia serve --otel`"):
            from spolia.services.telemetry import Telemetry, exporting
        with exporting(self.otel) as processor:
            yield Telemetry(processor, self.otel_content)


def serve(
    given: ServeOptions,
    *,
    host: Annotated[str, option("--host ADDRESS", "The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, option("--port", "The port; 0 for a free one.", min=0, max=65535)] = 8321,
    keys: KeysFile = None,
    tokens: TokenOptions,
    allow_host: Annotated[
        list[str] | None, option("--allow-host NAME", "A name of this server beside localhost; repeatable.")
    ] = None,
    platform: PlatformOptions,
    sent: UploadOptions,
    max_concurrent: Annotated[
        int, option("--max-concurrent", "Requests in progress; the next one gets 429.", min=1, max=10_000)
    ] = 256,
    shadow: Annotated[
        float,
        option(
            "--shadow SHARE",
            "Share of the questions to production that the alias candidate is also asked, after the answer.",
            min=0,
            max=1,
        ),
    ] = 0.0,
    spans: SpanOptions,
    shadow_calls: Annotated[
        int, option("--shadow-calls", "Limit on the candidate's calls to language models in a day.", min=0)
    ] = 1_000,
    live_markdown: LiveMarkdown = False,
) -> Exit:
    """Serve flows over HTTP: OpenAI's chat API, answers and search as JSON.

    Without --keys you get a token, and only this machine can ask. With --json the first line is {"url", "token"}.
    """
    screen = Screen(json=given.json)
    screen.say(f"Opening {given.store} …")  # imports and models take seconds on a busy machine

    with installed("server", "fastapi, uvicorn, uvloop, httptools, pyjwt or prometheus-client", "`spolia serve`"):
        from spolia.server.process import serve as serve_flows
        from spolia.server.service import HELD, Service, Shadow

    tokens.refuse_half()
    sent.refuse_half()
    spans.refuse_half(given)
    platform.refuse_half()
    access = tuple(given.access or ())
    llm = model_at(given.llm, given.model, profile_of(given.profile_file), given.think)
    parts = with_sources(parts_of(given.store, given, llm, given.group, given.known, given.prompts), given.web, access)
    corpus = parts.chunks.corpus
    corpus.snapshot()
    screen.say("Loading flows and models …")
    flows = _flows(given.flows or ["naive"], parts, screen)

    def tell(url: str, token: str) -> None:
        screen.give(url=url, token=token or None)
        screen.show(f"{', '.join(one.name for one in flows)} at {url}/v1", f"token: {token}" if token else "")

    redactor, at = redactor_of(given.redact), corpus.backend.folder
    hidden = None if redactor is None else hiding(redactor)
    if spans.otel:
        screen.say(f"Spans go to {spans.otel}, {'with' if spans.otel_content else 'without'} texts.")
    kept = Runs(at / RUNS, values=given.keep_values, redact=hidden, entries=HELD)
    with kept as runs, spans.exported() as telemetry:
        service = Service(
            corpus, flows, _served("default", parts, screen), runs=runs, max_concurrent=max_concurrent, threads=THREADS,
            embedder=parts.embedder, scorer=parts.scorer, feedback=FeedbackQueue(at / FEEDBACK, hidden or str),
            load=partial(_loaded, parts=parts, screen=screen), ledger=UsageLedger(at / "usage.db"),
            shadow=Shadow(runs.journal, shadow, shadow_calls) if shadow else None,
            telemetry=telemetry, live_markdown=live_markdown, cached=platform.cache_answers,
        )  # fmt: skip
        try:
            with sent.taken(parts, given) as documents:
                serve_flows(
                    service, tell, host=host, port=port, keys=keys, access=access, hosts=tuple(allow_host or ()),
                    oidc=tokens.accepted if tokens.oidc_issuer else None, documents=documents,
                    origins=tuple(platform.cors_origin or ()), root_path=platform.root_path,
                    json_logs=platform.json_logs,
                )  # fmt: skip
        except KeyboardInterrupt:  # or SIGTERM: the usual end of a server
            screen.say("The server has stopped.")
    return Exit.DONE


def _flows(named: Sequence[str], parts: "Parts", screen: Screen) -> "list[ServedFlow]":
    """The flows to serve, by their names."""
    flows = [_served(flow, parts, screen) for flow in named]
    if taken := [one.name for one in flows if one.name in ALIASES]:
        raise QueryError(
            f"{taken[0]} is the name of an alias, which is served anyway. Leave it out, or rename the file."
        )
    if len({one.name for one in flows}) < len(flows):
        raise QueryError(f"Two flows have one name: {', '.join(one.name for one in flows)}. Rename a file.")
    tell_of_measured(screen, (one.answer for one in flows), ())
    return flows


def _loaded(alias: str, to: "Promotion", *, parts: "Parts", screen: Screen) -> "ServedFlow":
    """The flow of an alias, for a running server."""
    found = _served(to.checked(), parts, screen)
    tell_of_models(screen, found.answer)
    return replace(found, name=alias, promotion=to)


@contextmanager
def _workers(documents: "Documents", count: int, launch: str, given: ServeOptions) -> Iterator[None]:
    """While inside, workers read and embed the documents."""
    at = given.store if "://" in given.store else str(Path(given.store).absolute())
    arguments = ["worker", "--jobs", at, "--wait", "0"]
    for name, values in (("--known", given.known), ("--redact", given.redact), ("--allow-env", given.allow_env)):
        arguments += [word for value in values or () for word in (name, value)]
    launcher = LaunchCommand(launch) if launch else LocalProcesses()
    with SharedWorkers(documents.queue, max(8, 2 * count)) as shared, watched(launcher, count, arguments):
        documents.workers = shared
        yield


def _served(name: str, parts: "Parts", screen: Screen) -> "ServedFlow":
    """A flow by its name or file; one that only finds passages answers by one more step."""
    from spolia.server.service import ServedFlow, conversational

    found, chosen = flow_of(name, parts)
    if chosen:
        screen.say(f"{name} searches with {chosen}")
    answer = conversational(answering(found, parts), parts.llm)
    return ServedFlow(Path(name).stem if is_file(name) else name, answer, found)
