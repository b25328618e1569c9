"""Addresses of stores in PostgreSQL: `postgresql://user@host:5432/database?schema=notes`, never with a password."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from spolia.errors import StoreError
from spolia.types import Value

SCHEMA = "spolia"
_STORE_OPTIONS = ("schema", "password_env")
_PASSWORD_FILES = {
    "service": "PGSERVICE",
    "servicefile": "PGSERVICEFILE",
    "passfile": "PGPASSFILE",
    "hostaddr": "PGPASSFILE",  # gets what the file has for another host
    "read_default_file": "MYSQL_PWD",
}
"""Options of an address that take a password from a file, with the variables of libpq and MySQL for them."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")


@dataclass(frozen=True)
class Address(Value):
    """Address of a store; without `password_env`, libpq reads the password from `PGPASSWORD` or `~/.pgpass` itself."""

    server: str
    schema: str = SCHEMA
    password_env: str = ""

    def __str__(self) -> str:
        options = [("schema", self.schema), *([("password_env", self.password_env)] if self.password_env else [])]
        return f"{self.server}{'&' if '?' in self.server else '?'}{urlencode(options)}"

    @property
    def env_names(self) -> dict[str, bool]:
        """See `spolia.core.environment.env_of`; libpq itself reads those that begin with PG.

        The password of a service goes to the host that the address names, not to the one of its service file.
        """
        variables = {self.password_env: True} if self.password_env else {"PGPASSWORD": False, "PGSERVICE": False}
        return variables | password_files(self.server)

    def secrets(self) -> Mapping[str, str]:
        if not self.password_env:
            return {}
        if (password := os.environ.get(self.password_env)) is None:
            raise StoreError(
                f"The address {self} names the environment variable {self.password_env!r}, which is not set. "
                f"Write: export {self.password_env}=…"
            )
        return {"password": password}


def password_files(address: str) -> dict[str, bool]:
    """Return the variables, as `env_names` does, for what an address takes from files with passwords."""
    options = {name for name, _ in parse_qsl(urlsplit(address).query)}
    return {variable: True for option, variable in _PASSWORD_FILES.items() if option in options}


_AUTHORITY = re.compile(
    r"[a-zA-Z][\w+.-]*://(?:[^:/?#@\[\]]*:?@)?(?:(?:\[[\w:.%]*\]|[^:/?#@,\[\]]*)(?::\d*)?(?:,|(?=[/?]|\Z)))+"
)
"""User without a password, hosts and ports, up to the path."""
_SECRET = re.compile(r"(?:pass(?!file)|pwd|\bpw\b|secret|token|api_?key|scram_)[^\s=]*\s*=", re.IGNORECASE)


def holds_password(address: str) -> bool:
    """Return whether an address holds a password or cannot be parsed; do not show it then.

    A password may hold `/`, `#`, `?`, `@` or `[` and end what looks like the host.

    >>> [holds_password(f"postgresql://{one}/db") for one in ("ann@h", "ann@h:5432,[::1]:5433", "ann:p@h", "ann:p/w@h")]
    [False, False, True, True]
    >>> holds_password("postgresql://h/db?sslpassword=p"), holds_password("postgresql://h/db?password_env=NAME")
    (True, False)
    >>> holds_password("postgresql://h/db?options=-c app.password=p"), holds_password("postgresql:ann:p@h/db")
    (True, True)
    """
    authority = _AUTHORITY.match(address)
    # What cannot be parsed may hold a password anywhere, so it counts as one.
    if authority is None or "#" in address:
        return True
    if ":" in unquote(authority[0].partition("//")[2].rpartition("@")[0].removesuffix(":")):
        return True
    path, _, query = address[authority.end() :].partition("?")
    pairs = [pair for pair in parse_qsl(query, keep_blank_values=True) if pair[0] not in _STORE_OPTIONS]
    return "@" in path + query or any(_SECRET.search("=".join(pair)) for pair in pairs)


@lru_cache(maxsize=64)
def parse_address(text: str) -> Address:
    """Parse an address; raise StoreError for a password or an invalid schema.

    >>> parse_address("postgresql://ann@db.example/texts?schema=notes&sslmode=require")
    Address(server='postgresql://ann@db.example/texts?sslmode=require', schema='notes', password_env='')
    """
    if holds_password(text):
        raise StoreError(
            "The address of a database holds a password, or a character that is none of an address, and addresses are "
            "written into flows and traces. Take it out of there, and set PGPASSWORD, write it into ~/.pgpass, or name "
            "an environment variable: postgresql://user@host/database?password_env=NAME. Write other characters with "
            "%, as %40 for @."
        )
    parts = urlsplit(text)
    parameters = parse_qsl(parts.query, keep_blank_values=True)
    options = {name: value for name, value in parameters if name in _STORE_OPTIONS}
    schema = options.get("schema", SCHEMA)
    # PostgreSQL keeps names with pg_ for itself, and `public` holds tables of other applications.
    if not _NAME.fullmatch(schema) or schema.startswith("pg_") or schema == "public":
        raise StoreError(
            f"{schema!r} cannot be the schema of a store. Write one of letters, digits and _, which is not public: "
            "postgresql://user@host/database?schema=notes"
        )
    query = urlencode([pair for pair in parameters if pair[0] not in _STORE_OPTIONS], quote_via=quote)
    server = f"{parts.scheme}://{parts.netloc.replace(':@', '@')}{parts.path}{'?' if query else ''}{query}"
    return Address(server, schema, options.get("password_env", ""))
