"""Which servers a flow sends to, said before anything is sent."""

import os
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import click

from spolia.cli.options import BUILDS
from spolia.cli.screen import Screen, visible
from spolia.core.environment import env_of, not_allowed
from spolia.core.operator import Operator
from spolia.errors import QueryError, StoreError
from spolia.models.http.remote import Remote
from spolia.models.protocols import LanguageModel
from spolia.stores.corpus import Corpus, NodeGroup
from spolia.stores.definition import Definition
from spolia.stores.manifest import Manifest, asked_by

SENT = "Questions and passages"
TEXTS = "Passages to be embedded"


def tell_of_models(
    screen: Screen, flow: Operator[Any, Any], given: LanguageModel | None = None, estimate: bool = False
) -> bool:
    """Say of each server that a flow asks where it is and which key goes there; whether a language model is asked.

    A flow file may come from somebody else, and name a server that its reader would not send documents to.
    """
    for server in dict.fromkeys(servers_of(flow)):
        screen.say(destination(server, would=estimate))
    models = [one for one in flow.resources if isinstance(one, LanguageModel)]
    if given is not None and given.name not in {one.name for one in models}:
        screen.say(f"{given.name} is not asked: no step of this flow uses it.", "yellow")
    return bool(models)


def servers_of(flow: Operator[Any, Any], opened: Corpus | None = None) -> Iterator[Remote]:
    """Yield the servers that a flow asks, with those of the groups that it would build at their first use.

    Args:
        opened: the only store that may be opened to find out which groups are built; None for any.
    """
    for one in flow.resources:
        if isinstance(one, Remote):
            yield one
    for group in groups_to_build(flow, opened):
        yield from builders(group)


def groups_to_build(flow: Operator[Any, Any], opened: Corpus | None = None) -> Iterator[NodeGroup]:
    """Yield the groups that a flow defines and that are not built."""
    for one in flow.resources:
        if isinstance(one, NodeGroup) and one.definition is not None:
            may_open = opened is None or one.corpus == opened
            if not (may_open and _is_built(one)):
                yield one


def builders(group: NodeGroup) -> Iterator[Remote]:
    """Yield the servers that get the texts of documents when a group is built."""
    if group.definition is not None:
        yield from servers_of(group.definition.transform)
        yield from (how.embedder for how in group.definition.embeddings if isinstance(how.embedder, Remote))


def confirm_builds(file: str, flow: Operator[Any, Any], given: Collection[object]) -> None:
    """Ask before a flow file makes documents leave: its groups are built at their first use, by servers that it names.

    Args:
        given: models that the caller named; they may get the texts.

    Raises:
        QueryError: the user declines, or cannot be asked.
    """
    known = _servers_and_models(given)
    for group in groups_to_build(flow):
        for server in dict.fromkeys(builders(group)):
            if (server.base_url, server.model) in known:
                continue
            sent = destination(
                server, f"{file} defines the group {group.name!r}: to build it, all texts of {group.corpus.path}"
            )
            if BUILDS.get():
                Screen().say(sent)
            elif not (sys.stdin.isatty() and sys.stderr.isatty()):
                raise QueryError(f"{sent} If you trust this server, add --build-groups.")
            elif not click.confirm(f"{visible(sent)} Build it?", err=True):
                raise QueryError(f"Group {group.name!r} was not built.")


def _is_built(group: NodeGroup) -> bool:
    try:
        return group.name in group.corpus.latest().manifests
    except StoreError:  # the search will say so
        return False


def tell_of_groups(
    screen: Screen,
    definitions: Iterable[Definition],
    manifests: Iterable[Manifest] = (),
    known: Iterable[Operator[Any, Any] | type] = (),
) -> None:
    """Name each server that makes or embeds groups, given or stored (perhaps by somebody else), and the key it gets."""
    given = [(*one.transform.resources, *(how.embedder for how in one.embeddings)) for one in definitions]
    asked = chain(*given, *(asked_by(manifest, known) for manifest in manifests))
    for model in dict.fromkeys(model for model in asked if isinstance(model, Remote)):
        screen.say(destination(model))


def destination(model: Remote, what: str = SENT, would: bool = False) -> str:
    """One line: what is sent, or `would` be, the server, the model, the variable of the key; never the key.

    >>> from spolia.models.http.chat import ChatModel
    >>> destination(ChatModel("qwen3", "http://127.0.0.1:8000/v1", api_key_env=""))
    'Questions and passages go to http://127.0.0.1:8000/v1 (qwen3), without a key.'
    """
    return (
        f"{what} {'would go' if would else 'go'} to {model.base_url} ({model.model}), {_with_key([model.api_key_env])}."
    )


def _with_key(variables: Sequence[str]) -> str:
    names = [name for name in variables if name]
    if there := [name for name in names if os.environ.get(name)]:
        return f"with the key in {' and '.join(there)}"
    return f"without a key ({' and '.join(names)} is not set)" if names else "without a key"


def sent_by(
    flow: Operator[Any, Any],
    given: Collection[object],
    trusted: Collection[object] = (),
    opened: Corpus | None = None,
) -> list[dict[str, Any]]:
    """What a flow sends, and where: each server that it names and is not given, and what its keys are called.

    Args:
        trusted: models that the caller named, whose keys are allowed.
        opened: the store that the caller named; others are not opened.
    """
    known, free = _servers_and_models(given), _servers_and_models(trusted)
    told = list[dict[str, Any]]()
    for one in dict.fromkeys((*servers_of(flow, opened), *flow.resources)):
        where = next((at for name in ("base_url", "url", "path") if "://" in (at := str(getattr(one, name, "")))), "")
        server = (where, getattr(one, "model", ""))
        if where and server not in known:
            row = {
                "what": SENT if hasattr(one, "model") else "Queries",
                "to": where,
                "model": server[1],
                "keys": list(env_of(one)),
                "not_allowed": [] if server in free else list(not_allowed(one)),
            }
            if row not in told:
                told.append(row)
    return told


def _servers_and_models(given: Collection[object]) -> set[tuple[str, str]]:
    """A published flow may ask a model for more than it states as it is given: it is the same server and model."""
    return {(getattr(one, "base_url", ""), getattr(one, "model", "")) for one in given}


def sent_lines(rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    for row in rows:
        model = f" ({row['model']})" if row["model"] else ""
        lacking = "".join(f" It runs with --allow-env {name} only." for name in row["not_allowed"])
        yield f"{row['what']} go to {row['to']}{model}, {_with_key(row['keys'])}.{lacking}"
