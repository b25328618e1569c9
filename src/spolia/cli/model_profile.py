"""`spolia.toml`: the models, the store and who asks, so that they need not be written with every command."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

from spolia import models
from spolia.core.environment import refuse_env
from spolia.deferred import tomllib
from spolia.errors import ModelError, QueryError, SpoliaError, VariableRefused
from spolia.models.http.remote import Remote
from spolia.stores.corpus import Corpus
from spolia.types import Value

FILE = "spolia.toml"
"""Looked for in the working directory."""
KEY = "api_key_env"
TABLES: Mapping[str, tuple[str, str]] = {
    "llm": ("llm", "model"),
    "embedder": ("embedder", "embed_model"),
    "reranker": ("reranker", "rerank_model"),
}
"""By table: the options that the `url` and `model` of a model stand for."""
_SECRET = re.compile(r"key|token|secret|password|credential|authorization", re.I)
_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]*")
M = TypeVar("M", bound=Remote)


@dataclass(frozen=True)
class ModelProfile(Value):
    """Profile with the models, the store and who asks.

    Args:
        path: of the file; empty for none.
        is_named: the caller named the file; one that merely lies in the working directory may come from somebody else,
            so that its variables have to be allowed (`spolia.core.environment`).
        address: of the store to search, or to index into.
        access: who asks.
        tables: the settings of each model, by table.
    """

    path: str = ""
    is_named: bool = False
    address: str = ""
    access: tuple[str, ...] = ()
    tables: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def store(self) -> str:
        """The store; empty if none is named.

        Raises:
            VariableRefused: the caller did not name the profile, and the store's address reads a variable that is not
                allowed.
        """
        if self.address:
            self._refuse(Corpus(self.address))
        return self.address

    def _refuse(self, value: object) -> None:
        if not self.is_named:
            try:
                refuse_env(value)
            except VariableRefused as error:
                raise VariableRefused(
                    f"{self.path}: {error.reason} Or name the file: --profile-file {self.path}"
                ) from error

    def options(self) -> dict[str, Any]:
        """Return the settings as options, by the names of their parameters."""
        values: dict[str, Any] = {"access": list(self.access)} if self.access else {}
        for table, settings in self.tables.items():
            url, model = TABLES[table]
            values |= {url: settings["url"]} | ({model: settings["model"]} if settings.get("model") else {})
        return values

    def model(self, table: str, url: str, name: str, **overrides: Any) -> Any:
        """Build the model of this name at this address. The profile's settings hold for its own address alone, so that
        no key goes to another server.

        Raises:
            VariableRefused: the profile was not named by the caller, and names a variable that is not allowed.
        """
        profile_settings = self.tables.get(table, {})
        is_its_own = profile_settings.get("url") == url
        settings = (
            {name: value for name, value in profile_settings.items() if name not in ("url", "model")}
            if is_its_own
            else {}
        )
        # Another model of the same server: the key is its own too, the settings are not.
        if settings and profile_settings.get("model", name) != name:
            settings = {KEY: settings[KEY]} if KEY in settings else {}
        built_model = _kind_of(table)(name, url, **{KEY: usual_key(url), **settings, **overrides})
        if is_its_own:
            self._refuse(built_model)
        return built_model


def _kind_of(table: str) -> type[Remote]:
    """Return the class of the model of a table."""
    return {"llm": models.ChatModel, "embedder": models.EmbeddingModel, "reranker": models.RerankModel}[table]


KEYS = {
    "api-version=": "AZURE_OPENAI_API_KEY",
    "//api.cohere.com": "COHERE_API_KEY",
    "//api.jina.ai": "JINA_API_KEY",
    "//api.voyageai.com": "VOYAGE_API_KEY",
}
"""The variable that a key is in, by a part of the address."""


def usual_key(url: str) -> str:
    """Return the default variable for the key of a server.

    >>> usual_key("https://api.jina.ai/v1"), usual_key("http://127.0.0.1:8000/v1")
    ('JINA_API_KEY', 'OPENAI_API_KEY')
    """
    return next((name for part, name in KEYS.items() if part in url), "OPENAI_API_KEY")


def load_profile(file: Path | None) -> ModelProfile:
    """Load a profile from a file, or from `spolia.toml` in the working directory; empty if the file does not exist.

    Raises:
        QueryError: it cannot be read, or says what is not known, or holds a secret; the value is not repeated.
    """
    path = file or Path(FILE)
    if file is None and not path.is_file():
        return ModelProfile()
    try:
        content = tomllib.loads(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise QueryError(f"The profile {path} cannot be read: {error}. Name a text file in TOML.") from error
    except tomllib.TOMLDecodeError as error:
        raise QueryError(f"The profile {path} is not valid TOML: {error}.") from error
    if unknown := sorted(content.keys() - {"store", "access", *TABLES}):
        # An unknown name may be that of a secret, whose message says where secrets belong.
        _refuse_secret(path, content, "")
        raise QueryError(f"{path}: {unknown[0]!r} is not known. Write some of: store, access, [{'], ['.join(TABLES)}].")
    access, store = content.get("access", []), content.get("store", "")
    if (
        not isinstance(store, str)
        or not isinstance(access, list)
        or not all(isinstance(principal, str) for principal in access)
    ):
        raise QueryError(f'{path}: store is a text, access a list of texts. Write access = ["ann", "staff"].')
    tables = {name: _check_settings(path, name, content[name]) for name in TABLES if name in content}
    return ModelProfile(str(path), file is not None, store, tuple(access), tables)


def _check_settings(path: Path, table: str, settings: Any) -> dict[str, Any]:
    if not isinstance(settings, dict) or not isinstance(settings.get("url"), str):
        raise QueryError(f'{path}: [{table}] has no url. Write url = "http://127.0.0.1:8000/v1" below it.')
    kind: Any = _kind_of(table)
    setting_names = {field.name for field in fields(kind)} - {"base_url"} | {"url"}
    _refuse_secret(path, {name: value for name, value in settings.items() if name not in setting_names}, f"[{table}] ")
    if unknown := sorted(settings.keys() - setting_names):
        raise QueryError(
            f"{path}: [{table}] has {unknown[0]!r}, which is not a setting. Write some of: "
            f"{', '.join(sorted(setting_names))}."
        )
    variable = settings.get(KEY, "")
    if not isinstance(variable, str) or (variable and not _VARIABLE.fullmatch(variable)):
        raise QueryError(
            f"{path}: {KEY} of [{table}] is not an environment variable. Write a name as OPENAI_API_KEY, and "
            "put the key into that variable; a key itself is never stored."
        )
    values = {name: tuple(value) if isinstance(value, list) else value for name, value in settings.items()}
    try:
        # Made once, to find a wrong value before anything is asked.
        kind(
            str(values.get("model", "")),
            values["url"],
            **{n: v for n, v in values.items() if n not in ("url", "model")},
        )
    except ModelError as error:
        raise QueryError(f"{path}: [{table}] {error}") from error
    except (TypeError, SpoliaError) as error:
        raise QueryError(
            f"{path}: [{table}] has a value of another type than its setting. See docs/how-to/models.md."
        ) from error
    return values


def _refuse_secret(path: Path, settings: Mapping[str, Any], prefix: str) -> None:
    """Refuse what looks like a secret, without repeating it."""
    for name in settings:
        if _SECRET.search(name):
            raise QueryError(
                f"{path}: {prefix}{name} would be a secret in a file. Take it out, put it into an environment "
                "variable, "
                f'and write the variable\'s name in the table of the model: {KEY} = "MY_KEY".'
            )
