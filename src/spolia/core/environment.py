"""Environment variables that may be read for an address that a file names: a flow, a store, a profile, a baseline.

Such a file may come from somebody else, and name any server and any variable, whose value would then be sent there.
An address that the caller wrote, on the command line or in Python, reads what it wants.
"""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import fields, is_dataclass
from typing import Any

from spolia.errors import VariableRefused

SHORTEST_SECRET = 8
"""Characters."""
ALLOWED = "SPOLIA_ALLOW_ENV"  # names, with commas between them, that are allowed to the whole process
_SUFFIX = "_env"
_NAME = re.compile(r"[A-Za-z_]\w*")
_ADDRESSES = ("base_url", "url", "path", "start", "sitemap")
_allowed: ContextVar[frozenset[tuple[str, str]]] = ContextVar("allowed_env", default=frozenset())
"""Names of variables, each with the one address that may be given its value; an empty address stands for all."""
_display_only: ContextVar[bool] = ContextVar("looking", default=False)


def is_secret(value: str) -> bool:
    """Return whether to hide a value in messages: `EMPTY`, `ollama` and `x` are keys of servers that need none, and
    hiding such words would change texts.

    >>> is_secret("sk-0123456789"), is_secret("EMPTY"), is_secret("embeddings"), is_secret("x1")
    (True, False, False, False)
    """
    return len(value) >= SHORTEST_SECRET and not value.isalpha()


_PASSWORD = re.compile(r"(://[^/:@\s]*:)(?!:|\d*/)[^@]*@")


def without_password(address: str) -> str:
    """Return an address without its password, for messages; unchanged if it has none.

    >>> without_password("sftp://ann:se/cret@host:22/docs"), without_password("abfs://docs@account/a:b@c")
    ('sftp://ann:…@host:22/docs', 'abfs://docs@account/a:b@c')
    """
    return _PASSWORD.sub(r"\1…@", address)


@contextmanager
def allow_env(*names: str, address: str = "") -> Iterator[None]:
    """Allow files to name these environment variables, for whatever runs inside.

    Args:
        names: of the variables.
        address: the only server that may be given them, for a server that the caller named; all servers by default.

    Raises:
        VariableRefused: one of them is not a valid name.

    >>> with allow_env("OPENAI_API_KEY"):
    ...     print(*allowed_env())
    OPENAI_API_KEY
    """
    if invalid := [name for name in names if not isinstance(name, str) or not _NAME.fullmatch(name)]:
        raise VariableRefused(f"{invalid[0]!r:.60} is not an environment variable. Write a name as OPENAI_API_KEY.")
    token = _allowed.set(_allowed.get().union((name, address) for name in names))
    try:
        yield
    finally:
        _allowed.reset(token)


def allowed_env(address: str = "") -> frozenset[str]:
    """Return the variables that an address may read: those of `allow_env` and of `SPOLIA_ALLOW_ENV`."""
    process_names = {name.strip() for name in os.environ.get(ALLOWED, "").split(",") if name.strip()}
    return frozenset(process_names | {name for name, only in _allowed.get() if only in ("", address)})


@contextmanager
def display_only() -> Iterator[None]:
    """Read files only to show their content: they may name any variable, and no address in them is opened."""
    token = _display_only.set(True)
    try:
        yield
    finally:
        _display_only.reset(token)


def is_display_only() -> bool:
    """Return whether files are read inside `display_only`."""
    return _display_only.get()


def env_of(value: Any) -> dict[str, bool]:
    """Return the variables that a value reads (`…_env`, or `env_names`), and whether the value itself names each."""
    if isinstance(declared_names := getattr(value, "env_names", None), dict):
        return declared_names
    if not is_dataclass(value) or isinstance(value, type):
        return {}
    env_fields = [field for field in fields(value) if field.name.endswith(_SUFFIX)]
    variables = {field.name: getattr(value, field.name) for field in env_fields}
    return {
        variables[field.name]: variables[field.name] != field.default for field in env_fields if variables[field.name]
    }


def disallowed_env(value: Any) -> dict[str, bool]:
    """Return the variables of `env_of` that would be read and are not allowed here."""
    variables = {name: is_named for name, is_named in env_of(value).items() if is_named or os.environ.get(name)}
    if not variables:
        return {}
    # A variable must be allowed for every address that could be sent its value.
    allowed = frozenset.intersection(*(allowed_env(address) for address in _addresses(value) or [""]))
    return {name: is_named for name, is_named in variables.items() if name not in allowed}


def _addresses(value: Any) -> list[str]:
    """Return the addresses to which a value may send what it reads."""
    entries = (getattr(value, name, "") for name in _ADDRESSES)
    groups = ((entry,) if isinstance(entry, str) else entry for entry in entries)
    return [str(address) for addresses in groups for address in addresses if address]


def refuse_env(value: Any) -> None:
    """Refuse a value from a file that reads a variable which the caller has not allowed."""
    if not _display_only.get():
        for name, is_named in disallowed_env(value).items():
            destination = f", whose value goes to {' and '.join(addresses)}" if (addresses := _addresses(value)) else ""
            keyless = next((field.name for field in fields(value) if field.name.endswith(_SUFFIX)), "")
            unneeded = (
                f" If the server needs no key, write {keyless}: '' with its address."
                if keyless and not is_named
                else ""
            )
            raise VariableRefused(
                f"{type(value).__name__} reads the environment variable {name}{destination}; you have not allowed "
                f"that. If you trust this server, add --allow-env {name}, or set {ALLOWED}={name} for all commands; in "
                f"Python write `with allow_env({name!r}):`, or load(…, env=({name!r},)).{unneeded}"
            )
