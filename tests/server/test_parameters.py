"""Parameters of requests: each one has its effect, or is named as one without, or is refused by its name."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest

pytest.importorskip("uvicorn", reason="the extra `server` is not installed")

import httpx
from mcp.server.mcpserver.exceptions import ToolError

from spolia import Corpus, Operator, Query
from spolia.journal import Runs
from spolia.server.app import build_application
from spolia.server.json_logs import JsonFormatter
from spolia.server.keys import ApiKeys, KeyHolder, hash_key
from spolia.server.mcp_tools import build_mcp_server
from spolia.server.request_checks import REQUESTS, _parse_host
from spolia.server.service import ServedFlow, Service
from spolia.services.documents import Documents
from spolia.types import Answer
from tests.cases import check_each

QUESTION = {"role": "user", "content": "What causes the tide?"}
ASKED = {"model": "flow", "messages": [QUESTION]}
Use = Literal["done", "named", "refused"]
ANY, SCHEMA = "an answer", {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object"}}}
PARAMETERS: dict[str, tuple[Use, Any, Any]] = {
    "messages": ("done", [QUESTION], []),
    "model": ("done", "flow", "gpt-9"),
    "stream": ("done", False, "maybe"),
    "stream_options": ("done", {"include_usage": True}, {"include_usage": "maybe"}),
    "n": ("done", 1, 2),
    "seed": ("done", 7, "seven"),
    "user": ("done", "ann", None), "metadata": ("done", {"a": "b"}, None), "store": ("done", True, None),
    "safety_identifier": ("done", "a", None), "prompt_cache_key": ("done", "a", None),
    "prompt_cache_retention": ("done", "24h", None), "service_tier": ("done", "auto", None),
    "parallel_tool_calls": ("done", True, None),
    "temperature": ("named", 0.5, 2.5),
    "top_p": ("named", 0.9, 1.5),
    "presence_penalty": ("named", -1, 3),
    "frequency_penalty": ("named", 1, -3),
    "max_tokens": ("named", 100, 0),
    "max_completion_tokens": ("named", 100, -1),
    "reasoning_effort": ("named", "low", None),
    "verbosity": ("named", "low", None),
    "response_format": ("refused", {"type": "text"}, SCHEMA),
    "stop": ("refused", None, ["\n"]),
    "tools": ("refused", [], [{"type": "function", "function": {"name": "f"}}]),
    "tool_choice": ("refused", "none", "required"),
    "functions": ("refused", [], [{"name": "f"}]),
    "function_call": ("refused", "none", {"name": "f"}),
    "logprobs": ("refused", False, True),
    "top_logprobs": ("refused", 0, 2),
    "logit_bias": ("refused", {}, {"50256": -100}),
    "audio": ("refused", None, {"voice": "alloy", "format": "wav"}),
    "modalities": ("refused", ["text"], ["text", "audio"]),
    "prediction": ("refused", None, {"type": "content", "content": "The moon."}),
    "web_search_options": ("refused", None, {"search_context_size": "low"}),
    "no_such_parameter": ("refused", None, 1),
}  # fmt: skip
"""OpenAI's parameters of a chat, and one that there is not: how it is used, a value that is accepted, and one that is
refused by the parameter's name; None for none."""


@dataclass(frozen=True)
class Counts(Operator[Query, Answer]):
    """Answers with the number of its calls."""

    cached: ClassVar[bool] = True
    calls_made: ClassVar[int] = 0

    def apply(self, value: Query, /) -> Answer:
        Counts.calls_made += 1
        history = " ".join(message.content for message in value.history)
        return Answer(f"{Counts.calls_made} {history}".strip())


def service_of(runs: Runs | None = None, **options: Any) -> Service:
    flow = Counts()
    return Service(Corpus("nowhere.spolia"), [item := ServedFlow("flow", flow, flow)], item, runs=runs, **options)


def ask(service: Service, *requests: tuple[str, str, dict[str, Any]], **options: Any) -> list[httpx.Response]:
    async def send_requests() -> list[httpx.Response]:
        app = build_application(service, ApiKeys({hash_key("k"): KeyHolder("ann", "ann")}), **options)
        inputs: dict[str, Any] = {"base_url": "http://127.0.0.1", "headers": {"Authorization": "Bearer k"}}
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), **inputs) as client:
            return [await client.request(method, path, **payload) for method, path, payload in requests]

    return asyncio.run(send_requests())


def chat(service: Service, body: dict[str, Any], **headers: str) -> httpx.Response:
    http_headers = {name.replace("_", "-"): value for name, value in headers.items()}
    return ask(service, ("POST", "/v1/chat/completions", {"json": body, "headers": http_headers}))[0]


@pytest.mark.slow
def test_no_parameter_of_openais_is_ignored_without_a_word() -> None:
    service = service_of()
    for name, (use, accepted, refused) in PARAMETERS.items():
        reply = chat(service, ASKED | {name: accepted})
        assert reply.status_code == 200, (name, reply.text)
        without_effect = reply.json()["spolia"].get("without_effect", [])
        assert without_effect == ([name] if use == "named" else []), name
        if refused is None:
            continue
        wrong = chat(service, ASKED | {name: refused})
        assert wrong.status_code in (400, 404), (name, wrong.text)
        error = wrong.json()["error"]
        assert name in (error["param"] or error["message"]).split(".")[0], (name, error)
        assert error["type"] == "invalid_request_error"


@pytest.mark.slow
def test_images_and_tools_in_a_history_do_not_end_a_chat() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    history = [
        {"role": "user", "content": [{"type": "text", "text": "See this."}, image]},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": "42"},
        {"role": "assistant", "content": [{"type": "text", "text": "I see."}, {"type": "refusal", "refusal": "x"}]},
    ]
    response = chat(service_of(), ASKED | {"messages": [*history, QUESTION]})
    assert response.status_code == 200, response.text
    assert response.json()["choices"][0]["message"]["content"].endswith("See this. I see.")
    for last in ({"role": "user", "content": [image]}, history[2]):
        refused = chat(service_of(), ASKED | {"messages": [QUESTION, last]})
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "messages")


@pytest.mark.slow
def test_an_answer_is_cached_unless_the_request_or_the_server_wants_a_fresh_one(tmp_path: Path) -> None:
    def ask_text(service: Service, more: Any = (), **headers: str) -> str:
        text: str = chat(service, ASKED | dict(more), **headers).json()["choices"][0]["message"]["content"]
        return text

    with Runs(tmp_path / "runs.db") as runs:
        service = service_of(runs)
        first = ask_text(service)
        assert (ask_text(service), ask_text(service, cache_control="no-cache") == first) == (first, False)
        seven = ask_text(service, {"seed": 7})
        assert (seven == first, ask_text(service, {"seed": 7}), ask_text(service, {"seed": 8}) == seven) == (
            False,
            seven,
            False,
        )
        assert ask_text(service) == first
        fresh = service_of(runs, cached=False)
        assert ask_text(fresh) != ask_text(fresh)
    metrics = ask(service, ("GET", "/metrics", {}))[0].text
    assert 'spolia_cached_answers_total{flow="flow"} 3.0' in metrics


@check_each(
    ("host", "name"),
    [
        ("localhost", "localhost"), ("LOCALHOST:80", "localhost"), ("localhost.", "localhost"), ("[::1]:80", "::1"),
        ("rag.example.org:8321", "rag.example.org"), ("127.0.0.1", "127.0.0.1"), ("", ""), ("user@localhost", ""),
        ("localhost/x", ""), ("localhost?x", ""), ("localhost#x", ""), ("localhost:x", ""), ("localhost:1:2", ""),
        ("local host", ""), ("evil.org\\@localhost", ""), ("localhost:", ""), ("::1", ""), ("[::1", ""),
    ],
)  # fmt: skip
def test_a_host_is_a_name_and_a_port_or_nothing(host: str, name: str) -> None:
    assert _parse_host(host) == name


def test_pages_of_other_origins_ask_only_if_the_server_names_them() -> None:
    origin = {"Origin": "https://app.example.org"}
    asks = origin | {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
    requests: list[Any] = [("OPTIONS", "/v1/answer", {"headers": asks}), ("GET", "/v1/models", {"headers": origin})]
    for origins, allowed in (((), None), (("https://app.example.org",), "https://app.example.org")):
        preflight, reply = ask(service_of(), *requests, origins=origins)
        assert [response.headers.get("access-control-allow-origin") for response in (preflight, reply)] == [allowed] * 2
    (other_response,) = ask(
        service_of(), ("GET", "/v1/models", {"headers": {"Origin": "https://evil.org"}}), origins=origins
    )
    assert "access-control-allow-origin" not in other_response.headers


def test_a_proxy_may_have_the_server_below_a_path_that_it_passes_on_or_not() -> None:
    requests: list[Any] = [("GET", path, {}) for path in ("/spolia/v1/models", "/v1/models", "/spolia/live")]
    responses = ask(service_of(), *requests, ("GET", "/spolia/openapi.json", {}), root_path="/spolia")
    assert [response.status_code for response in responses] == [200] * 4
    assert responses[-1].json()["servers"] == [{"url": "/spolia"}]


def test_logs_are_lines_of_json_with_one_of_each_request(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, REQUESTS.name):
        ask(service_of(), ("POST", "/v1/answer", {"json": {"question": "secret"}}))
    lines = [json.loads(JsonFormatter().format(record)) for record in caplog.records if record.name == REQUESTS.name]
    assert [(record["route"], record["status"], record["key"], record["level"]) for record in lines] == [
        ("/v1/answer", 200, "ann", "INFO")
    ]
    assert "secret" not in json.dumps(lines)


def call(arguments: dict[str, Any], tool: str = "search") -> str:
    """What a tool says is wrong."""
    with pytest.raises(ToolError) as error:
        asyncio.run(build_mcp_server(service_of()).call_tool(tool, arguments))
    return str(error.value)


@check_each(
    ("arguments", "words"),
    [
        ({}, ["question", "required"]), ({"query": "tides"}, ["'query'", "question, top_k, where"]),
        ({"question": "tides", "top_k": "many"}, ["top_k", "integer"]),
        ({"question": ["tides"]}, ["question", "string"]), ({"question": "tides", "top_k": 0}, ["top_k", "greater"]),
        ({"question": "tides", "where": "year"}, ["where", "list"]),
    ],
)  # fmt: skip
def test_an_agent_reads_which_argument_is_wrong(arguments: dict[str, Any], words: Sequence[str]) -> None:
    message = call(arguments)
    assert all(word in message for word in words), message
    assert "pydantic.dev" not in message


@pytest.mark.slow
def test_every_number_of_an_address_has_a_range_and_a_value_outside_is_refused(fast_folder: Path) -> None:
    documents = Documents(Corpus(str(fast_folder / "n.spolia")))
    options: Any = {"documents": documents}
    service = service_of()
    api = build_application(service, ApiKeys({}), **options).openapi()
    for path, methods in api["paths"].items():
        for parameter in (methods.get("get") or {}).get("parameters", ()):
            schema, name = parameter["schema"], parameter["name"]
            if parameter["in"] == "query" and schema.get("type") == "integer":
                numbers = schema["minimum"] - 1, schema["maximum"] + 1
                address = path.replace("{name}", "a.md" if "documents" in path else "0" * 12).replace("{page}", "1")
                for reply in ask(
                    service, *(("GET", f"{address}?{name}={number}", {}) for number in numbers), **options
                ):
                    assert (reply.status_code, reply.json()["error"]["param"]) == (400, name), (path, name)
    (reply,) = ask(service, ("GET", "/v1/tasks?state=lost", {}), **options)
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, "state")
    documents.close()


@pytest.mark.slow
def test_tasks_are_listed_page_by_page_and_metrics_count_queues(fast_folder: Path) -> None:
    documents = Documents(Corpus(str(fast_folder / "n.spolia")), callback_hosts=["127.0.0.1:1"])
    service = service_of()
    options: Any = {"documents": documents}
    requests: list[Any] = [("PUT", f"/v1/documents/{name}.md", {"content": b"Zebras."}) for name in "abc"]
    app = build_application(service, ApiKeys({hash_key("k"): KeyHolder("ann", "ann", writes=True)}), **options)

    async def send_requests() -> tuple[list[list[int]], str]:
        inputs: dict[str, Any] = {"base_url": "http://127.0.0.1", "headers": {"Authorization": "Bearer k"}}
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), **inputs) as client:
            for method, path, payload in requests:
                await client.request(method, path, params={"callback": "http://127.0.0.1:1/"}, **payload)
            pages, previous_counts = list[list[int]](), dict[str, int]()
            while True:
                tasks = (await client.get("/v1/tasks", params={"limit": 2, **previous_counts})).json()["tasks"]
                if not tasks:
                    break
                pages.append([task["task"] for task in tasks])
                previous_counts = {"before": tasks[-1]["task"]}
            documents.publish()
            return pages, (await client.get("/metrics")).text

    pages, metrics = asyncio.run(send_requests())
    assert pages == [[3, 2], [1]]
    assert 'spolia_jobs{queue="documents",state="done"} 3.0' in metrics
    assert 'spolia_jobs{queue="callbacks",state="waiting"} 3.0' in metrics
    assert 'spolia_oldest_job_seconds{queue="callbacks"}' in metrics
    documents.close()
