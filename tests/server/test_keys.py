"""Keys in a file, tokens, and addresses that need keys."""

from __future__ import annotations

import socket
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from spolia.errors import QueryError
from spolia.server.keys import ApiKeys, DailyQuota, KeyHolder, KeysInFile, Quota, add_key, token_in
from tests.cli.conftest import Spolia, spolia  # noqa: F401

EARLIER = datetime(2026, 1, 1, tzinfo=UTC)


def test_a_file_has_the_hash_of_a_key_alone(tmp_path: Path, spolia: Spolia) -> None:  # noqa: F811
    file = tmp_path / "keys.toml"
    made = spolia(
        "keys", "ann", "--keys", file, "--group", 'a "b" \\', "--requests-per-minute", 9, "--days", 2, "--json",
        "--tokens-per-day", 1000, "--usd-per-day", 0.5,
    ).json  # fmt: skip
    add_key(file, KeyHolder("bob-laptop", "bob"))
    assert made["key"] not in file.read_text()
    assert file.stat().st_mode & 0o777 == 0o600
    ann = KeysInFile(file).holder(f"Bearer {made['key']}")
    assert ann is not None
    assert (ann.principal, ann.groups, ann.quota.per_minute) == ("ann", ('a "b" \\',), 9)
    assert ann.daily == DailyQuota(0, 1000, 0.5)
    assert ann.expires is not None
    assert timedelta(days=1.9) < ann.expires - datetime.now(UTC) < timedelta(days=2)
    assert spolia("keys", "ann", "--keys", file).code == 2


def test_a_changed_file_holds_from_the_next_request_on(tmp_path: Path) -> None:
    file = tmp_path / "keys.toml"
    ann, late = add_key(file, KeyHolder("ann", quota=Quota(1))), add_key(file, KeyHolder("late", expires=EARLIER))
    keys = KeysInFile(file)
    assert (held := keys.holder(f"Bearer {ann}")) is not None
    assert (held.quota.wait(held.quota.started), keys.holder(f"Bearer {late}")) == (0.0, None)
    bob = add_key(file, KeyHolder("bob"))
    assert keys.holder(f"Bearer {bob}") is not None
    assert (still := keys.holder(f"Bearer {ann}")) is not None
    assert still.quota.wait(still.quota.started) > 0  # a change of the file gives no new quota
    file.write_text("[")
    assert keys.holder(f"Bearer {bob}") is not None
    file.write_text("")
    assert (keys.holder(f"Bearer {ann}"), keys.holder(f"Bearer {bob}")) == (None, None)


@pytest.mark.parametrize(
    "text",
    [
        "[",
        "ann = 1",
        "[ann]",
        f'[ann]\nsha256 = "{"0" * 64}"\nexpires = 2030-01-01T00:00:00',
        '[ann]\nsha256 = "x"',
        '[ann]\nsha257 = "x"',
    ],
)
def test_a_wrong_file_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "keys.toml").write_text(text)
    with pytest.raises(QueryError, match="spolia keys"):
        KeysInFile(tmp_path / "keys.toml")


def test_the_token_is_made_at_the_first_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    token = token_in(tmp_path / "new")
    assert token_in(tmp_path / "new") == token
    assert (tmp_path / "new" / "serve.token").stat().st_mode & 0o777 == 0o600
    assert ApiKeys.of_token(token, ("staff",)).holder(f"Bearer {token}") is not None
    monkeypatch.setenv("SPOLIA_TOKEN", "mine")
    assert token_in(tmp_path / "new") == "mine"


@pytest.mark.slow
def test_only_loopback_does_without_keys_and_a_taken_port_is_told(tmp_path: Path, spolia: Spolia) -> None:  # noqa: F811
    pytest.importorskip("uvicorn", reason="the extra `server` is not installed")
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.md").write_text("The tide is caused by the moon.")
    store = tmp_path / "n.spolia"
    assert spolia("index", tmp_path / "notes", "--store", store, "--no-vectors").code == 0
    refused = spolia("serve", "--store", store, "--host", "0.0.0.0", "--json")
    assert (refused.code, "spolia keys" in refused.json["error"]["message"]) == (2, True)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        refused = spolia("serve", "--store", store, "--port", taken.getsockname()[1], "--json")
    assert (refused.code, "another --port" in refused.json["error"]["message"]) == (2, True)
    assert spolia("serve", "naive", "naive", "--store", store).code == 2
