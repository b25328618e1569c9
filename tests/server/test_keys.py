"""Keys in a file, tokens, and addresses that need keys."""

from __future__ import annotations

import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from spolia.errors import BudgetSpent, QueryError
from spolia.models import ScriptedModel
from spolia.run import Run
from spolia.server.keys import (
    ApiKeys,
    DailyQuota,
    KeyHolder,
    KeysInFile,
    Quota,
    UsageLedger,
    add_key,
    load_token,
)
from spolia.types import Message, Prompt, Usage
from tests.cli.conftest import Spolia, spolia  # noqa: F401

EARLIER = datetime(2026, 1, 1, tzinfo=UTC)


def test_a_file_has_the_hash_of_a_key_alone(tmp_path: Path, spolia: Spolia) -> None:  # noqa: F811
    file = tmp_path / "keys.toml"
    added = spolia(
        "keys", "ann", "--keys", file, "--group", 'a "b" \\', "--requests-per-minute", 9, "--days", 2, "--json",
        "--tokens-per-day", 1000, "--usd-per-day", 0.5,
    ).json  # fmt: skip
    add_key(file, KeyHolder("bob-laptop", "bob"))
    assert added["key"] not in file.read_text()
    assert file.stat().st_mode & 0o777 == 0o600
    ann = KeysInFile(file).holder(f"Bearer {added['key']}")
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
    assert (holder := keys.holder(f"Bearer {ann}")) is not None
    assert (holder.quota.wait(holder.quota.started), keys.holder(f"Bearer {late}")) == (0.0, None)
    bob = add_key(file, KeyHolder("bob"))
    assert keys.holder(f"Bearer {bob}") is not None
    assert (still := keys.holder(f"Bearer {ann}")) is not None
    assert still.quota.wait(still.quota.started) > 0  # a change of the file gives no new quota
    with_a_slip = file.read_text().partition('["bob"]')[0].replace("sha256", "sha265")
    file.write_text(with_a_slip)  # ann's entry is wrong, and bob's is deleted
    assert keys.holder(f"Bearer {ann}") is not None
    assert keys.holder(f"Bearer {bob}") is None
    bob = add_key(file, KeyHolder("bob"))
    assert keys.holder(f"Bearer {bob}") is not None
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
    token = load_token(tmp_path / "new")
    assert load_token(tmp_path / "new") == token
    assert (tmp_path / "new" / "serve.token").stat().st_mode & 0o777 == 0o600
    assert ApiKeys.from_token(token, ("staff",)).holder(f"Bearer {token}") is not None
    monkeypatch.setenv("SPOLIA_TOKEN", "mine")
    assert load_token(tmp_path / "new") == "mine"


@pytest.mark.slow
def test_only_loopback_does_without_keys_and_a_taken_port_is_told(tmp_path: Path, spolia: Spolia) -> None:  # noqa: F811
    pytest.importorskip("uvicorn", reason="the extra `server` is not installed")
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.md").write_text("The tide is caused by the moon.")
    store = tmp_path / "n.spolia"
    assert spolia("index", tmp_path / "notes", "--store", store, "--no-vectors").code == 0
    refused = spolia("serve", "--store", store, "--host", "0.0.0.0", "--json")
    assert (refused.code, "spolia keys" in refused.json["error"]["message"]) == (2, True)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        refused = spolia("serve", "--store", store, "--port", listener.getsockname()[1], "--json")
    assert (refused.code, "another --port" in refused.json["error"]["message"]) == (2, True)
    assert spolia("serve", "naive", "naive", "--store", store).code == 2


def test_calls_at_the_same_time_keep_within_the_day_of_a_key_in_all_servers_of_a_store(tmp_path: Path) -> None:
    """Thirty runs, over two servers, of calls that may each take a quarter of what the key may spend."""
    ledgers, quota = [UsageLedger(tmp_path / "usage.db") for _ in range(2)], DailyQuota(tokens=400)
    model, together, ended = ScriptedModel(("one two three",)), threading.Barrier(30), list[str]()

    def ask(number: int) -> None:
        with Run(budget=ledgers[number % 2].limiter("ann", quota)):
            together.wait()
            try:
                model.generate(Prompt((Message("user", "Why?"),)), max_tokens=99)
            except BudgetSpent as error:
                ended.append(str(error))
            else:
                ended.append("answered")

    with ThreadPoolExecutor(30) as pool:
        list(pool.map(ask, range(30)))
    _, tokens, _ = ledgers[0].used("ann")
    assert len(ended) == 30
    assert all(outcome == "answered" or "the key 'ann' for today" in outcome for outcome in ended)
    assert "answered" in ended
    assert tokens == 4 * ended.count("answered") <= quota.tokens


def test_a_server_that_was_killed_in_a_call_leaves_it_counted_at_its_bound(tmp_path: Path) -> None:
    ledger, quota = UsageLedger(tmp_path / "usage.db"), DailyQuota(tokens=400)
    limiter = ledger.limiter("ann", quota)
    assert limiter is not None
    assert limiter.reserve(Usage(output_tokens=300), optional=False) == ""
    later = UsageLedger(tmp_path / "usage.db").limiter("ann", quota)
    assert later is not None
    assert "300 of 400 tokens are spent" in later.reserve(Usage(output_tokens=101), optional=False)
    assert later.reserve(Usage(output_tokens=100), optional=False) == ""
