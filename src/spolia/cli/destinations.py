"""Servers that a flow sends texts to, printed before anything is sent."""

import os
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import click

from spolia.cli.options import BUILDS
from spolia.cli.screen import Screen, visible
from spolia.core.environment import disallowed_env, env_of
from spolia.core.operator import Operator
from spolia.errors import QueryError, StoreError
from spolia.models.http.remote import Remote
from spolia.models.protocols import LanguageModel
from spolia.stores.corpus import Corpus, NodeGroup
from spolia.stores.definition import Definition
from spolia.stores.manifest import Manifest, models_of

QUESTIONS_SENT = "Questions and passages"
PASSAGES_SENT = "Passages to be embedded"


def print_flow_servers(
    screen: Screen, flow: Operator[Any, Any], requested_model: LanguageModel | None = None, estimate: bool = False
) -> bool:
    """Say of each server that a flow asks where it is and which key goes there; whether a language model is asked.

    A flow file may come from somebody else, and name a server that its reader would not send documents to.
    """
    for server in dict.fromkeys(list_flow_servers(flow)):
        screen.say(describe_destination(server, is_estimate=estimate))
    models = [resource for resource in flow.resources if isinstance(resource, LanguageModel)]
    if requested_model is not None and requested_model.name not in {model.name for model in models}:
        screen.say(f"{requested_model.name} is not asked: no step of this flow uses it.", "yellow")
    return bool(models)


def list_flow_servers(flow: Operator[Any, Any], allowed_store: Corpus | None = None) -> Iterator[Remote]:
    """Yield the servers that a flow asks, with those of the groups that it would build at their first use.

    Args:
        allowed_store: the only store that may be opened to find out which groups are built; None for any.
    """
    for resource in flow.resources:
        if isinstance(resource, Remote):
            yield resource
    for group in list_unbuilt_groups(flow, allowed_store):
        yield from list_build_servers(group)


def list_unbuilt_groups(flow: Operator[Any, Any], allowed_store: Corpus | None = None) -> Iterator[NodeGroup]:
    """Yield the groups that a flow defines and that are not built."""
    for resource in flow.resources:
        if isinstance(resource, NodeGroup) and resource.definition is not None:
            # A store that only the flow names stays closed.
            may_open = allowed_store is None or resource.corpus == allowed_store
            if not (may_open and _is_built(resource)):
                yield resource


def list_build_servers(group: NodeGroup) -> Iterator[Remote]:
    """Yield the servers that get the texts of documents when a group is built."""
    if group.definition is not None:
        yield from list_flow_servers(group.definition.transform)
        yield from (
            embedding.embedder for embedding in group.definition.embeddings if isinstance(embedding.embedder, Remote)
        )


def confirm_builds(file: str, flow: Operator[Any, Any], named_models: Collection[object]) -> None:
    """Ask before a flow file makes documents leave: its groups are built at their first use, by servers that it names.

    Args:
        named_models: models that the caller named; they may get the texts.

    Raises:
        QueryError: the user declines, or cannot be asked.
    """
    named_servers = _server_models(named_models)
    for group in list_unbuilt_groups(flow):
        for server in dict.fromkeys(list_build_servers(group)):
            if (server.base_url, server.model) in named_servers:
                continue
            message = describe_destination(
                server, f"{file} defines the group {group.name!r}: to build it, all texts of {group.corpus.path}"
            )
            if BUILDS.get():
                Screen().say(message)
            # Without a terminal nobody can answer, and no answer is no consent.
            elif not (sys.stdin.isatty() and sys.stderr.isatty()):
                raise QueryError(f"{message} If you trust this server, add --build-groups.")
            elif not click.confirm(f"{visible(message)} Build it?", err=True):
                raise QueryError(f"Group {group.name!r} was not built.")


def _is_built(group: NodeGroup) -> bool:
    try:
        return group.name in group.corpus.latest().manifests
    except StoreError:  # the search will say so
        return False


def print_group_servers(
    screen: Screen,
    definitions: Iterable[Definition],
    manifests: Iterable[Manifest] = (),
    known_operators: Iterable[Operator[Any, Any] | type] = (),
) -> None:
    """Name each server that makes or embeds groups, given or stored (perhaps by somebody else), and the key it gets."""
    definition_models = [
        (*definition.transform.resources, *(embedding.embedder for embedding in definition.embeddings))
        for definition in definitions
    ]
    models = chain(*definition_models, *(models_of(manifest, known_operators) for manifest in manifests))
    for model in dict.fromkeys(model for model in models if isinstance(model, Remote)):
        screen.say(describe_destination(model))


def describe_destination(model: Remote, content: str = QUESTIONS_SENT, is_estimate: bool = False) -> str:
    """Return one line: what is sent, to which server and model, and the variable of the key, never the key itself.

    >>> from spolia.models.http.chat import ChatModel
    >>> describe_destination(ChatModel("qwen3", "http://127.0.0.1:8000/v1", api_key_env=""))
    'Questions and passages go to http://127.0.0.1:8000/v1 (qwen3), without a key.'
    """
    verb = "would go" if is_estimate else "go"
    return f"{content} {verb} to {model.base_url} ({model.model}), {_describe_key([model.api_key_env])}."


def _describe_key(variables: Sequence[str]) -> str:
    names = [name for name in variables if name]
    if present := [name for name in names if os.environ.get(name)]:
        return f"with the key in {' and '.join(present)}"
    return f"without a key ({' and '.join(names)} is not set)" if names else "without a key"


def list_destinations(
    flow: Operator[Any, Any],
    named_models: Collection[object],
    trusted: Collection[object] = (),
    allowed_store: Corpus | None = None,
) -> list[dict[str, Any]]:
    """Return what a flow sends and where: each server that it names itself, with the names of its keys.

    Args:
        trusted: models that the caller named, whose keys are allowed.
        allowed_store: the store that the caller named; others are not opened.
    """
    named_servers, trusted_servers = _server_models(named_models), _server_models(trusted)
    rows = list[dict[str, Any]]()
    for resource in dict.fromkeys((*list_flow_servers(flow, allowed_store), *flow.resources)):
        address = next(
            (value for name in ("base_url", "url", "path") if "://" in (value := str(getattr(resource, name, "")))), ""
        )
        server = (address, getattr(resource, "model", ""))
        if address and server not in named_servers:
            row = {
                "what": QUESTIONS_SENT if hasattr(resource, "model") else "Queries",
                "to": address,
                "model": server[1],
                "keys": list(env_of(resource)),
                "not_allowed": [] if server in trusted_servers else list(disallowed_env(resource)),
            }
            if row not in rows:
                rows.append(row)
    return rows


def _server_models(models: Collection[object]) -> set[tuple[str, str]]:
    """Return address and model name of each model: a published flow may hold a copy with other capabilities."""
    return {(getattr(model, "base_url", ""), getattr(model, "model", "")) for model in models}


def format_destinations(rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    for row in rows:
        model = f" ({row['model']})" if row["model"] else ""
        lacking = "".join(f" It runs with --allow-env {name} only." for name in row["not_allowed"])
        yield f"{row['what']} go to {row['to']}{model}, {_describe_key(row['keys'])}.{lacking}"
