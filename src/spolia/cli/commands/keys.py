"""`spolia keys`: keys for the users of a service."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

from spolia.cli import options
from spolia.cli.exit_codes import Exit
from spolia.cli.parameters import argument, option
from spolia.cli.screen import Screen
from spolia.server.keys import DailyQuota, KeyHolder, Quota, add_key

KEYS = "TOML file with the keys of users; `spolia keys` makes it."


def keys(
    name: Annotated[str, argument("NAME", "Name of the key.")],
    keys: Annotated[Path, option("--keys FILE", KEYS)],
    principal: Annotated[str, option("--principal NAME", "The user who asks with it; by default NAME.")] = "",
    group: Annotated[list[str] | None, option("--group NAME", "A group of that user; repeatable.")] = None,
    requests_per_minute: Annotated[int, option("--requests-per-minute", "Limit on requests; 0 for none.", min=0)] = 0,
    requests_per_day: Annotated[int, option("--requests-per-day", "Limit on requests; 0 for none.", min=0)] = 0,
    tokens_per_day: Annotated[
        int, option("--tokens-per-day", "Limit on tokens sent and generated; 0 for none.", min=0)
    ] = 0,
    usd_per_day: Annotated[
        float, option("--usd-per-day", "Limit in US dollars, for models with a known price; 0 for none.", min=0)
    ] = 0.0,
    write: Annotated[bool, option("--write", "The key may add documents, and change and delete its own.")] = False,
    admin: Annotated[bool, option("--admin", "The key may change and delete all documents.")] = False,
    days: Annotated[int, option("--days", "Days until the key expires; 0 for no end.", min=0, max=36_500)] = 0,
    json: options.AsJson = False,
) -> Exit:
    """Make a key for a user of `spolia serve`. The key is printed once; the file holds only its SHA-256."""
    screen = Screen(json=json)
    expires = datetime.now(UTC) + timedelta(days=days) if days else None
    daily = DailyQuota(requests_per_day, tokens_per_day, usd_per_day)
    key_holder = KeyHolder(
        name, principal or name, tuple(group or ()), Quota(requests_per_minute), daily, expires, write, admin
    )
    key = add_key(keys, key_holder)
    screen.give(name=name, key=key)
    screen.write(key)
    return Exit.DONE
