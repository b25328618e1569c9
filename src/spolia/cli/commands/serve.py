"""`spolia serve`: flows over HTTP."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from spolia import server, services
from spolia.cli import options
from spolia.cli.commands.keys import KEYS
from spolia.cli.destinations import print_flow_servers
from spolia.cli.exit_codes import Exit
from spolia.cli.flow_parts import Parts, add_second_source, build_parts, ensure_answer, is_file, load_flow
from spolia.cli.measured_destinations import print_measured_servers
from spolia.cli.model_profile import load_profile
from spolia.cli.models import load_language_model
from spolia.cli.options import MAIN, LiveMarkdown, RerankOptions
from spolia.cli.parameters import argument, option
from spolia.cli.readers import build_readers, build_redactor
from spolia.cli.runs import FEEDBACK, RUNS, THREADS
from spolia.cli.screen import Screen
from spolia.errors import QueryError, require_extra
from spolia.evaluation.creation.feedback import FeedbackQueue
from spolia.journal import Runs
from spolia.journal.values import make_redaction
from spolia.server.keys import ApiKeys, DailyQuota, UsageLedger
from spolia.services.aliases import ALIASES, Promotion
from spolia.services.documents import Documents
from spolia.services.workers import LaunchCommand, LocalProcesses, SharedWorkers, supervise_workers

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
    modules: options.Known = None
    allow_env: options.AllowEnv = None
    build_groups: options.BuildGroups = False
    prompts: options.OwnPrompts = None
    keep_values: options.KeepValues = False
    redact: options.Redact = None
    json: options.AsJson = False


@dataclass(frozen=True)
class TokenOptions:
    """Options of an identity provider, whose tokens are accepted as keys."""

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

    def combine_keys(self, other_keys: "ApiKeys") -> "ApiKeys":
        """Return keys that accept the provider's tokens besides the other keys."""
        daily = DailyQuota(tokens=self.oidc_tokens_per_day)
        claims: dict[str, Any] = {"user": self.oidc_user, "groups": self.oidc_groups, "daily": daily}
        provider = self.oidc_issuer, self.oidc_audience
        return server.tokens.IssuedTokens(other_keys, *provider, per_minute=self.oidc_requests_per_minute, **claims)


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
    def open_uploads(self, parts: "Parts", serve_options: ServeOptions) -> "Iterator[Documents | None]":
        """Take documents while inside; workers read and embed them."""
        if not self.documents:
            yield None
            return
        document_service = Documents(
            parts.chunks.corpus, folders=self.folder or (), scan_s=self.scan, callback_hosts=self.callback_host or (),
            readers=build_readers(serve_options.modules, serve_options.redact),
            keeps_originals=self.originals and not serve_options.redact,
            operators=[part for part in (*parts.known_operators, parts.embedder) if part is not None],
        )  # fmt: skip
        with (
            nullcontext()
            if self.workers is None
            else _run_workers(document_service, self.workers, self.launch, serve_options)
        ):
            yield document_service


@dataclass(frozen=True)
class SpanOptions:
    """Options of OpenTelemetry."""

    otel: Annotated[
        str, option("--otel URL", "OpenTelemetry collector that gets a span of each step, as http://localhost:4318.")
    ] = ""
    otel_content: Annotated[
        bool, option("--otel-content", "Also export texts: questions, prompts, passages, answers. Needs --keep-values.")
    ] = False

    def refuse_half(self, serve_options: ServeOptions) -> None:
        if self.otel_content and not (self.otel and serve_options.keep_values):
            raise QueryError(
                "--otel-content exports texts that the journal keeps. Write --otel URL and --keep-values, too."
            )

    @contextmanager
    def export_spans(self) -> "Iterator[Telemetry | None]":
        """Export spans while inside; gives None without a collector."""
        if not self.otel:
            yield None
            return
        with require_extra("otel", "opentelemetry-sdk or its OTLP exporter", "`spolia serve --otel`"):
            telemetry = services.telemetry
        with telemetry.open_exporter(self.otel) as processor:
            yield telemetry.Telemetry(processor, self.otel_content)


def serve(
    serve_options: ServeOptions,
    *,
    host: Annotated[str, option("--host ADDRESS", "The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, option("--port", "The port; 0 for a free one.", min=0, max=65535)] = 8321,
    keys: KeysFile = None,
    tokens: TokenOptions,
    allow_host: Annotated[
        list[str] | None, option("--allow-host NAME", "A name of this server beside localhost; repeatable.")
    ] = None,
    platform: PlatformOptions,
    uploads: UploadOptions,
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
    screen = Screen(json=serve_options.json)
    screen.say(f"Opening {serve_options.store} …")  # imports and models take seconds on a busy machine

    with require_extra("server", "fastapi, uvicorn, uvloop, httptools, pyjwt or prometheus-client", "`spolia serve`"):
        process, service_module = server.process, server.service

    tokens.refuse_half()
    uploads.refuse_half()
    spans.refuse_half(serve_options)
    platform.refuse_half()
    access = tuple(serve_options.access or ())
    llm = load_language_model(
        serve_options.llm, serve_options.model, load_profile(serve_options.profile_file), serve_options.think
    )
    parts = add_second_source(
        build_parts(
            serve_options.store, serve_options, llm, serve_options.group, serve_options.modules, serve_options.prompts
        ),
        serve_options.web,
        access,
    )
    corpus = parts.chunks.corpus
    corpus.snapshot()  # raises an error now if there is no store
    screen.say("Loading flows and models …")
    flows = _load_flows(serve_options.flows or ["naive"], parts, screen)

    def tell(url: str, token: str) -> None:
        screen.give(url=url, token=token or None)
        screen.show(f"{', '.join(flow.name for flow in flows)} at {url}/v1", f"token: {token}" if token else "")

    redactor, folder = build_redactor(serve_options.redact), corpus.backend.folder
    hidden = None if redactor is None else make_redaction(redactor)
    if spans.otel:
        screen.say(f"Spans go to {spans.otel}, {'with' if spans.otel_content else 'without'} texts.")
    run_store = Runs(
        folder / RUNS, values=serve_options.keep_values, redact=hidden, entries=service_module.MAX_CACHED_RESULTS
    )
    with run_store as runs, spans.export_spans() as telemetry:
        service = service_module.Service(
            corpus, flows, _load_served_flow("default", parts, screen), runs=runs,
            max_concurrent=max_concurrent, threads=THREADS, embedder=parts.embedder, scorer=parts.scorer,
            feedback=FeedbackQueue(folder / FEEDBACK, hidden or str),
            load=partial(_load_alias, parts=parts, screen=screen), ledger=UsageLedger(folder / "usage.db"),
            shadow=service_module.Shadow(runs.journal, shadow, shadow_calls) if shadow else None,
            telemetry=telemetry, live_markdown=live_markdown, cached=platform.cache_answers,
        )  # fmt: skip
        try:
            with uploads.open_uploads(parts, serve_options) as documents:
                process.serve(
                    service, tell, host=host, port=port, keys=keys, access=access, hosts=tuple(allow_host or ()),
                    oidc=tokens.combine_keys if tokens.oidc_issuer else None, documents=documents,
                    origins=tuple(platform.cors_origin or ()), root_path=platform.root_path,
                    json_logs=platform.json_logs,
                )  # fmt: skip
        except KeyboardInterrupt:  # or SIGTERM: the usual end of a server
            screen.say("The server has stopped.")
    return Exit.DONE


def _load_flows(names: Sequence[str], parts: "Parts", screen: Screen) -> "list[ServedFlow]":
    """Load the flows to serve."""
    flows = [_load_served_flow(flow, parts, screen) for flow in names]
    if alias_names := [flow.name for flow in flows if flow.name in ALIASES]:
        raise QueryError(
            f"{alias_names[0]} is the name of an alias, which is served anyway. Leave it out, or rename the file."
        )
    if len({flow.name for flow in flows}) < len(flows):
        raise QueryError(f"Two flows have one name: {', '.join(flow.name for flow in flows)}. Rename a file.")
    print_measured_servers(screen, (flow.answer for flow in flows), ())
    return flows


def _load_alias(alias: str, promotion: "Promotion", *, parts: "Parts", screen: Screen) -> "ServedFlow":
    """Load the flow of an alias, for a running server."""
    served_flow = _load_served_flow(promotion.verify_flow(), parts, screen)
    print_flow_servers(screen, served_flow.answer)
    return replace(served_flow, name=alias, promotion=promotion)


@contextmanager
def _run_workers(documents: "Documents", count: int, launch: str, serve_options: ServeOptions) -> Iterator[None]:
    """Run workers while inside, which read and embed the documents."""
    # The command may start a worker in another folder.
    store_address = serve_options.store if "://" in serve_options.store else str(Path(serve_options.store).absolute())
    arguments = ["worker", "--jobs", store_address, "--wait", "0"]  # they end with the service
    for name, values in (
        ("--known", serve_options.modules),
        ("--redact", serve_options.redact),
        ("--allow-env", serve_options.allow_env),
    ):
        arguments += [word for value in values or () for word in (name, value)]
    launcher = LaunchCommand(launch) if launch else LocalProcesses()
    # More calls than workers, so that none waits for its next one.
    with SharedWorkers(documents.queue, max(8, 2 * count)) as shared, supervise_workers(launcher, count, arguments):
        documents.workers = shared
        yield


def _load_served_flow(name: str, parts: "Parts", screen: Screen) -> "ServedFlow":
    """Load a flow by its name or file; add an answering step if it only finds passages."""
    loaded_flow, chosen = load_flow(name, parts)
    if chosen:
        screen.say(f"{name} searches with {chosen}")
    answer = server.service.make_conversational(ensure_answer(loaded_flow, parts), parts.llm)
    return server.service.ServedFlow(Path(name).stem if is_file(name) else name, answer, loaded_flow)
