"""Tokens of an identity provider (OpenID Connect): signed by its keys, for this server, not expired."""

from __future__ import annotations

import asyncio
import json
import logging
from threading import Lock
from time import monotonic
from typing import Any
from urllib.parse import urlsplit

import jwt

from spolia.egress.download import fetch
from spolia.errors import EgressFailed, EgressRefused, QueryError
from spolia.server.keys import ApiKeys, DailyQuota, KeyHolder, Quota

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""Signatures by private keys. A token cannot choose `none`, nor a signature that public keys can make."""
REQUIRED = ("iss", "aud", "exp", "iat", "sub")
LEEWAY_S = 10
"""By which clocks may differ."""
KEPT_S = 3_600.0
"""Seconds for which the keys of the provider are kept."""
PAUSE_S = 30.0
"""Seconds between two requests for keys, whatever tokens ask for."""
MOST_BYTES = 1 << 20
MOST_USERS = 10_000
"""Users whose requests in a minute are counted."""


class IssuedTokens(ApiKeys):
    """Holders by tokens of a provider, together with those of other keys.

    Args:
        other_keys: keys that are no tokens.
        issuer: the provider's address. Its configuration names where its keys are.
        audience: who the tokens must be for: this server.
        user: the claim with the user's name, as access lists have it.
        groups: the claim with the user's groups: a list of texts.
        per_minute: requests of each user; 0 for no limit.
        daily: limits of each user in a day.

    Raises:
        QueryError: the provider cannot be reached, or is not what its address says.
    """

    def __init__(
        self,
        other_keys: ApiKeys,
        issuer: str,
        audience: str,
        *,
        user: str = "sub",
        groups: str = "groups",
        per_minute: int = 0,
        daily: DailyQuota | None = None,
    ) -> None:
        super().__init__({})
        url_parts = urlsplit(issuer)
        is_here = url_parts.hostname in ("localhost", "127.0.0.1", "::1")
        if url_parts.scheme != "https" and not (is_here and url_parts.scheme == "http"):
            raise QueryError(f"The issuer {issuer!r:.200} must be an https:// address.")
        self.issuer, self.audience, self.user, self.groups = issuer, audience, user, groups
        self.per_minute, self.daily, self.other_keys = per_minute, daily or DailyQuota(), other_keys
        self._keys: dict[str, Any] = {}
        self._fetched, self._lock = 0.0, Lock()
        self._quotas: dict[str, Quota] = {}
        self._fetch()
        self._fetched = monotonic()

    def holder(self, authorization: str) -> KeyHolder | None:
        if (holder := self.other_keys.holder(authorization)) is not None:
            return holder
        scheme, _, token = authorization.partition(" ")
        key = self._keys.get(_key_id(token := token.strip()))
        # The provider may have withdrawn keys of more than an hour ago.
        if scheme.lower() != "bearer" or key is None or self._is_old:
            return None
        try:
            claims = jwt.decode(
                # The key decides on the algorithm, not the token.
                token, key, algorithms=[key.algorithm_name], audience=self.audience, issuer=self.issuer,
                leeway=LEEWAY_S, options={"require": list(REQUIRED)},
            )  # fmt: skip
        except (jwt.PyJWTError, ValueError, TypeError, RecursionError):
            return None
        return self._holder_of(claims)

    async def refresh(self, authorization: str) -> bool:
        """Return whether the key that a token names is known; fetch the provider's keys first if they may be old."""
        id, last_fetch = _key_id(authorization.partition(" ")[2].strip()), self._fetched
        if id and (id not in self._keys or self._is_old) and monotonic() - last_fetch >= PAUSE_S:
            await asyncio.to_thread(self._refetch, last_fetch)
        return id in self._keys

    @property
    def _is_old(self) -> bool:
        return monotonic() - self._fetched > KEPT_S

    def _refetch(self, last_fetch: float) -> None:
        """Ask the provider for its keys, unless another request has just done so."""
        with self._lock:
            if self._fetched != last_fetch:
                return
            try:
                self._fetch()
            except QueryError as error:
                logging.getLogger(__name__).warning("The keys of before still hold. %s", error)
            self._fetched = monotonic()  # also after a failure: a provider that is down is not asked for each token

    def _holder_of(self, claims: dict[str, Any]) -> KeyHolder | None:
        name, groups = claims.get(self.user), claims.get(self.groups, [])
        # At some providers anybody can claim any address.
        is_doubted = self.user == "email" and claims.get("email_verified") is not True
        if not isinstance(name, str) or not name or is_doubted:
            return None
        if not isinstance(groups, list) or not all(isinstance(group, str) for group in groups):
            return None
        if len(self._quotas) > MOST_USERS:  # a full reset bounds the memory; each user has a fresh minute then
            self._quotas.clear()
        quota = self._quotas.setdefault(name, Quota(self.per_minute))
        return KeyHolder(f"oidc:{name}", name, tuple(groups), quota, self.daily)  # a name that no key has

    def _fetch(self) -> None:
        """Ask the provider for its keys."""
        configuration = self._fetch_json(f"{self.issuer.rstrip('/')}/.well-known/openid-configuration")
        if configuration.get("issuer") != self.issuer:
            raise QueryError(f"{self.issuer} says that it is {configuration.get('issuer')!r:.200}. Write that address.")
        key_list = self._fetch_json(str(configuration.get("jwks_uri", ""))).get("keys", [])
        keys = {}
        for key_data in key_list if isinstance(key_list, list) else ():
            try:
                key = jwt.PyJWK(key_data)
            except (jwt.PyJWTError, TypeError, AttributeError, ValueError):
                continue  # a key of a kind that is not known
            if key_data.get("use", "sig") == "sig" and key.algorithm_name in ALGORITHMS:
                keys[str(key_data.get("kid", ""))] = key
        if not keys:
            raise QueryError(f"{self.issuer} signs no tokens by any of {', '.join(ALGORITHMS)}.")
        self._keys = keys

    def _fetch_json(self, url: str) -> dict[str, Any]:
        try:
            host = urlsplit(self.issuer).netloc
            # The issuer may have a private address; another host that it points to may not.
            parsed = json.loads(fetch(url, allow=(host,), largest_bytes=MOST_BYTES, deadline_s=20).data)
        except (EgressFailed, EgressRefused, ValueError, RecursionError) as error:
            raise QueryError(f"The issuer {self.issuer} cannot be used: {error}") from error
        if not isinstance(parsed, dict):
            raise QueryError(f"The issuer {self.issuer} cannot be used: {url} has no JSON object.")
        return parsed


def _key_id(token: str) -> str:
    """Return the id of the key that a token claims to be signed by; empty without one, or for no token."""
    try:
        return str(jwt.get_unverified_header(token).get("kid", ""))
    except (jwt.PyJWTError, ValueError, TypeError, RecursionError):
        return ""
