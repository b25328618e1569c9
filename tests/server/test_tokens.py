"""Tokens of an identity provider, good and forged ones."""

from __future__ import annotations

import asyncio
import hmac
import json
import shutil
import socket
import subprocess
import time
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("jwt", reason="the extra `server` is not installed")

import httpx
import jwt
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from spolia.errors import QueryError
from spolia.models.file_hash import cache_folder
from spolia.server import tokens
from spolia.server.keys import ApiKeys, DailyQuota
from spolia.server.tokens import IssuedTokens

pytestmark = pytest.mark.slow

ISSUER_SCRIPT = Path(__file__).with_name("oidc_provider.mjs")


def packages() -> Path:
    """The folder with npm's `oidc-provider`, installed once."""
    folder = cache_folder() / "oidc-provider-9"
    if (node := shutil.which("node")) is None or (npm := shutil.which("npm")) is None:
        pytest.skip("node and npm are not installed: no identity provider to test against")
    if not (folder / "node_modules" / "oidc-provider").is_dir():
        command = [npm, "install", "oidc-provider@9", "--no-audit", "--no-fund", "--silent", "--prefix", str(folder)]
        if subprocess.run(command, capture_output=True, timeout=120, check=False).returncode:
            pytest.skip(f"npm cannot install oidc-provider for {node}: no identity provider to test against")
    return folder


class Provider:
    """A running provider that signs by a key which the tests know."""

    def __init__(self, folder: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.url = f"http://127.0.0.1:{free.getsockname()[1]}"
        self.folder = folder
        self.start("first")

    def start(self, kid: str) -> None:
        self.kid, self.key = kid, rsa.generate_private_key(public_exponent=65537, key_size=2048)
        jwk = jwt.algorithms.RSAAlgorithm.to_jwk(self.key, as_dict=True) | {"kid": kid, "use": "sig", "alg": "RS256"}
        command = ["node", str(ISSUER_SCRIPT), str(self.folder), self.url, json.dumps(jwk)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert self.process.stdout is not None
        assert any(line == "ready\n" for line in self.process.stdout)

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()

    def token(self, user: str, resource: str = "urn:spolia") -> str:
        request = {"grant_type": "client_credentials", "scope": "ask", "resource": resource}
        response = httpx.post(f"{self.url}/token", data=request, auth=(user, "secret"))
        return str(response.json()["access_token"])

    def signed(self, key: Any = None, algorithm: str = "RS256", **claims: Any) -> str:
        """A token as the provider would write it, with other claims, or signed by another key."""
        now = int(time.time())
        plain = {"iss": self.url, "aud": "spolia", "sub": "ann", "iat": now, "exp": now + 60, "groups": ["staff"]}
        claims_by_name = {name: value for name, value in (plain | claims).items() if value is not None}
        return jwt.encode(claims_by_name, self.key if key is None else key, algorithm, {"kid": self.kid})


def encode(content: bytes) -> str:
    return urlsafe_b64encode(content).decode().rstrip("=")


@pytest.fixture(scope="module")
def provider() -> Iterator[Provider]:
    new_provider = Provider(packages())
    yield new_provider
    new_provider.stop()


def test_tokens_of_a_provider_are_users_with_groups_and_no_other_tokens_are(provider: Provider) -> None:
    keys = IssuedTokens(ApiKeys.from_token("k"), provider.url, "spolia", per_minute=1, daily=DailyQuota(tokens=9))

    def principals(token: str) -> list[str] | None:
        return None if (holder := keys.holder(f"Bearer {token}")) is None else sorted(holder.principals)

    assert principals(provider.token("ann")) == ["ann", "staff"]
    assert principals(provider.token("bob")) == ["bob"]
    assert (principals("k"), principals(provider.signed())) == ([], ["ann", "staff"])
    first, second = keys.holder(f"Bearer {provider.signed()}"), keys.holder(f"Bearer {provider.signed()}")
    assert first is not None
    assert second is not None
    assert first.quota is second.quota  # of the user, whatever the token
    assert second.daily == DailyQuota(tokens=9)
    assert first.name == "oidc:ann"  # so that a key named `ann` owns other tasks, and has other limits
    other_key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    public = provider.key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    head, body, signature = provider.signed().split(".")
    none, shared = (
        encode(json.dumps({"alg": algorithm, "kid": provider.kid}).encode()) for algorithm in ("none", "HS256")
    )
    by_public = encode(hmac.digest(public, f"{shared}.{body}".encode(), "sha256"))
    now = int(time.time())
    forged = {
        "wrong audience": provider.token("ann", "urn:other"),
        "expired": provider.signed(iat=now - 600, exp=now - 300),
        "not yet": provider.signed(nbf=now + 300),
        "no end": provider.signed(exp=None),
        "no user": provider.signed(sub=None),
        "empty user": provider.signed(sub=""),
        "another issuer": provider.signed(iss="http://127.0.0.1:1"),
        "groups are a text": provider.signed(groups="staff"),
        "another key": provider.signed(key=other_key),
        "another algorithm": provider.signed(algorithm="PS256"),
        "signed by a public key": f"{shared}.{body}.{by_public}",
        "none": f"{none}.{body}.",
        "no signature": f"{head}.{body}.",
        "changed": f"{head}.{body[:-4]}AAAA.{signature}",
        "no token": "a.b.c",
        "deep": f"{encode(b'[' * 100_000)}.{body}.{signature}",
    }
    assert {name: principals(token) for name, token in forged.items()} == dict.fromkeys(forged)


def test_new_keys_of_a_provider_are_found_and_a_flood_of_tokens_asks_it_once(
    provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = IssuedTokens(ApiKeys({}), provider.url, "spolia")
    provider.stop()
    provider.start("second")
    header = f"Bearer {provider.token('ann')}"
    assert (keys.holder(header), asyncio.run(keys.refresh(header))) == (None, False)  # it was asked a moment ago
    monkeypatch.setattr(tokens, "PAUSE_S", 0.0)
    fetch, fetches = keys._fetch, list[int]()

    def count_fetch() -> None:
        fetches.append(1)
        fetch()

    monkeypatch.setattr(keys, "_fetch", count_fetch)

    async def flood() -> list[bool]:
        return await asyncio.gather(*(keys.refresh(header) for _ in range(20)))

    assert (all(asyncio.run(flood())), len(fetches)) == (True, 1)
    assert keys.holder(header) is not None
    provider.stop()
    monkeypatch.setattr(tokens, "KEPT_S", 0.0)
    assert keys.holder(header) is None  # its keys are old
    assert asyncio.run(keys.refresh(header))
    monkeypatch.setattr(tokens, "KEPT_S", 60.0)
    assert keys.holder(header) is not None  # a provider that is away does not lock users out
    provider.start("third")


def test_a_provider_that_cannot_be_used_is_refused(provider: Provider) -> None:
    for issuer, reason in (
        (f"{provider.url}/", "says that it is"),
        ("http://example.org", "must be an https"),
        ("http://127.0.0.1:1", "cannot be used"),
    ):
        with pytest.raises(QueryError, match=reason):
            IssuedTokens(ApiKeys({}), issuer, "spolia")
