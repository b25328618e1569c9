"""Base of all servers of the OpenAI protocol: an address, time limits, rate limits and prices."""

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import ClassVar
from urllib.parse import urlsplit

from spolia.deferred import csv
from spolia.errors import ModelError
from spolia.types import Usage, Value
from spolia.types.value import neutral_field, refuse_type


@dataclass(frozen=True)
class Remote(Value):
    """Address of a model on a server. It holds no secret: the key is read from the environment at each call.

    Args:
        model: what the server calls it.
        base_url: where the API begins, for example `http://127.0.0.1:8000/v1`, or with the version that Azure wants,
            `https://NAME.openai.azure.com/openai/deployments/NAME?api-version=2024-10-21` (the key is sent as its
            header `api-key` then). Texts and the key are sent there and nowhere else: redirects raise.
        api_key_env: name of the environment variable with the key; nothing is sent where it is empty or not set.
        connect_timeout_s: seconds until it takes a connection.
        timeout_s: seconds without a byte from it.
        deadline_s: seconds for one call, with all attempts and waits.
        retries: attempts after the first, where the failure may pass. None once text has been handed out.
        wait_s: about how long to wait before the second attempt; twice as long before each further one (between half
            and all of it, at random, so that callers spread). A server's `Retry-After` counts where it is longer.
        max_wait_s: the longest wait; if the server asks for more, the call fails without waiting.
        max_concurrent: requests to this model at this address at a time, in this process; more than a run's threads
            send are never under way. Write fewer for a server that cannot queue.
        requests_per_minute: of this model in this process; a minute's worth may be sent together; 0 for no limit.
        tokens_per_minute: the same for tokens sent and requested, as they are estimated before they are sent.
        usd_per_million: price of a million tokens sent, and generated. Where both are 0, the price
            of this model at this host counts, as published in 2025 (`models/http/prices.csv`).

    Times, attempts and limits do not change results, so cached results stay valid if you change them. An
    address with another path is another model: it may be another deployment.
    """

    model: str
    base_url: str
    api_key_env: str = "OPENAI_API_KEY"
    connect_timeout_s: float = neutral_field(5.0)
    timeout_s: float = neutral_field(60.0)
    deadline_s: float = neutral_field(300.0)
    retries: int = neutral_field(3)
    wait_s: float = neutral_field(0.5)
    max_wait_s: float = neutral_field(30.0)
    max_concurrent: int = neutral_field(256, previous=8)  # digests are still made with 8, the former default
    requests_per_minute: float = neutral_field(0.0)
    tokens_per_minute: float = neutral_field(0.0)
    usd_per_million: tuple[float, float] = (0.0, 0.0)

    def __post_init__(self) -> None:
        if not isinstance(self.model, str):
            refuse_type(self, "model", "the name by which the server knows the model")
        if not isinstance(self.base_url, str):
            refuse_type(self, "base_url", "the address of the server: 'http://127.0.0.1:8000/v1'")
        object.__setattr__(self, "base_url", check_url(self.base_url))
        positive = ("connect_timeout_s", "timeout_s", "deadline_s", "max_concurrent")
        for name in (*positive, "retries", "wait_s", "max_wait_s"):
            number, bound = getattr(self, name), "0 <" if name in positive else "0 <="
            if not 0 <= number <= 1e6 or (name in positive and number == 0):  # NaN fails this too
                raise ModelError(f"{type(self).__name__} got {name}={number}. Write {bound} number <= 1000000.")
        if len(self.usd_per_million) != 2 or not all(0 <= price < 1e9 for price in self.usd_per_million):
            raise ModelError(
                f"{type(self).__name__} got usd_per_million={self.usd_per_million}. Write two prices, of tokens sent "
                "and of tokens generated: (0.15, 0.6)."
            )
        for name in ("requests_per_minute", "tokens_per_minute"):
            if not 0 <= getattr(self, name) <= 1e12:
                raise ModelError(f"{type(self).__name__} got {name}={getattr(self, name)}. Write 0 for no limit.")

    @property
    def name(self) -> str:
        return self.model

    scoped: ClassVar[bool] = False

    def fingerprint(self) -> str:
        return f"{self.base_url}|{self.model}"

    @property
    def label(self) -> str:
        return f"{self.model} at {self.base_url}"

    def add_price(self, usage: Usage) -> Usage:
        """Return the usage with its cost."""
        input_price, output_price = self.usd_per_million
        if not (input_price or output_price):
            input_price, output_price = usd_per_million(urlsplit(self.base_url).hostname or "", self.model)
        return usage.but(cost_usd=(usage.input_tokens * input_price + usage.output_tokens * output_price) / 1e6)


_VERSION = re.compile(r"api-version=[\w.-]+")  # addresses of Azure end in it; any other query may be a secret


def check_url(url: str) -> str:
    """Return the address of an API, without a slash at its end; ModelError if it is none, or holds a secret."""
    try:
        parts = urlsplit(url)
        query = "" if _VERSION.fullmatch(parts.query) else parts.query
        secret = bool(parts.username or parts.password or query or parts.fragment)
        # `port` raises above 65535
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        secret = valid = False
    if secret:
        raise ModelError(
            "base_url holds more than an address (a user, a password, a query other than api-version), which would be "
            "stored with the flow. Write the address alone, and name the key's variable in api_key_env."
        )
    if not valid:
        raise ModelError(f"base_url is {url!r}, no web address. Write for example 'http://127.0.0.1:8000/v1'.")
    base, mark, query = url.partition("?")
    return base.rstrip("/") + mark + query


def join_url(base_url: str, path: str) -> str:
    """Return the address of one service; the query comes last."""
    base, mark, query = base_url.partition("?")
    return f"{base}/{path}{mark}{query}"


TABLE = Path(__file__).with_name("prices.csv")


def usd_per_million(host: str, model: str) -> tuple[float, float]:
    """Return the price of a million tokens sent, and generated; (0, 0) if it is not known. Dated versions cost the
    same.

    >>> usd_per_million("api.openai.com", "gpt-4o-mini-2024-07-18"), usd_per_million("127.0.0.1", "gpt-4o-mini")
    ((0.15, 0.6), (0.0, 0.0))
    """
    undated = re.sub(r"-(?:\d{4}-\d{2}-\d{2}|\d{4})$", "", model)
    return _table().get((host, model)) or _table().get((host, undated)) or (0.0, 0.0)


@cache
def _table() -> dict[tuple[str, str], tuple[float, float]]:
    with TABLE.open(encoding="utf-8", newline="") as file:
        return {
            (row["host"], row["model"]): (float(row["input"]), float(row["output"])) for row in csv.DictReader(file)
        }
