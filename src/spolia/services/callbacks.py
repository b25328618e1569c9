"""Callbacks of ended tasks to addresses that users name: signed, and repeated while a receiver is away, as in Standard
Webhooks.

The callback of a task is a job of its own, made in the transaction that ends the task: one for each task, also if the
service is killed. Its id is the same at each attempt, so that a receiver knows a repeated one.

Source: https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
"""

from __future__ import annotations

import hmac
import json
import logging
import os
import secrets
import threading
from base64 import b64decode, b64encode
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from random import uniform
from time import time
from typing import Any
from urllib.parse import urlsplit
from zlib import crc32

from spolia.egress.download import post
from spolia.errors import EgressError, EgressFailed, EgressRefused, QueryError
from spolia.private_files import make_folder, private
from spolia.services.jobs import CALLBACK, Claim, Job, JobQueue

PREFIX, FILE, VARIABLE = "whsec_", "callback.secret", "SPOLIA_CALLBACK_SECRET"
HOUR_S = 3600.0
WAITS_S = (5.0, 300.0, HOUR_S / 2, *(hours * HOUR_S for hours in (2, 5, 10, 14, 20, 24)))
"""Seconds before each further attempt, give or take 20 %: three days in all, as Standard Webhooks recommends."""
DAY_S = 24 * HOUR_S
GONE_STATUS = 410
"""The status of a receiver that wants no more."""
BATCH_SIZE = 8
LONGEST_URL = 2_000


class Callbacks:
    """Sender of ended tasks to their addresses.

    Args:
        queue: the jobs. Those with a `callback` in their payload are posted when they have ended.
        folder: has the secret that signs, made at first use, unless `SPOLIA_CALLBACK_SECRET` is set.
        hosts: whose addresses need not be public, and that need no https: `hooks.internal`, `localhost:8000`.
    """

    def __init__(self, queue: JobQueue, folder: Path, hosts: Collection[str] = ()) -> None:
        self.queue, self.folder, self.hosts = queue, folder, frozenset(hosts)
        self._wake_event = threading.Event()

    @property
    def secret(self) -> str:
        """Return the secret that receivers check signatures with.

        Raises:
            QueryError: it is not one.
        """
        if not (secret := os.environ.get(VARIABLE, "")):
            file = self.folder / FILE
            if not file.exists():
                random = secrets.token_bytes(32)
                with _create_private_file(file) as out:
                    # The checksum shows damage here, before receivers reject all signatures.
                    out.write(PREFIX + b64encode(random + crc32(random).to_bytes(4, "big")).decode())
            if damage := secret_damage(file):
                raise QueryError(damage)
            secret = file.read_text("ascii").strip()
        if not secret.startswith(PREFIX):
            raise QueryError(f"{VARIABLE} does not begin with {PREFIX}. Write {PREFIX} and 32 random bytes in base64.")
        return secret

    def check_address(self, url: str) -> str:
        """Return an address if tasks may be posted there.

        Raises:
            QueryError: it is not one.
        """
        try:
            parts = urlsplit(url)
            address = f"{parts.hostname}:{parts.port}"
        except ValueError:  # the port is no number, or an IPv6 bracket is open
            parts, address = urlsplit(""), ""
        is_own = {parts.hostname, address} & self.hosts
        if (
            len(url) > LONGEST_URL
            or "@" in parts.netloc
            or not parts.hostname
            or not (is_own or parts.scheme == "https")
        ):
            raise QueryError(f"{url!r:.200} is not an address for callbacks. Write https://HOST/PATH.")
        return url

    def deliver(self) -> int:
        """Post waiting callbacks; return the number of attempts."""
        # The first attempt, and one after each wait.
        claims = self.queue.claim(f"callbacks {os.getpid()}", BATCH_SIZE, queue=CALLBACK, max_claims=len(WAITS_S) + 1)
        if claims:
            with ThreadPoolExecutor(len(claims)) as pool:
                list(pool.map(self._post_callback, claims))
        return len(claims)

    def run(self, stopped: threading.Event, poll_s: float = 1.0) -> None:
        """Post what comes until it is stopped."""
        while not stopped.is_set():
            self._wake_event.clear()
            try:
                if self.deliver():
                    continue
            except Exception as error:  # the queue cannot be read or written now; its leases end
                logging.getLogger(__name__).warning("Callbacks wait: %s: %s", type(error).__name__, error)
            self._wake_event.wait(poll_s)

    def wake(self) -> None:
        self._wake_event.set()

    def _post_callback(self, claim: Claim) -> None:
        job = self.queue.job(claim.payload["task"])
        if job is None:  # forgotten meanwhile
            self.queue.end([claim], "failed", "The task is not kept any more.")
            return
        id, body = f"task_{job.id}", json.dumps(callback_body(job)).encode()
        headers = {"Content-Type": "application/json", **sign_headers(self.secret, id, int(time()), body)}
        try:
            post(str(job.payload[CALLBACK]), body, allow=self.hosts, headers=headers)
        except EgressFailed as error:
            self._retry_later(claim, error)
        except EgressRefused as error:
            # status 0: the address itself is forbidden, which no wait changes
            if error.status and error.status != GONE_STATUS:
                self._retry_later(claim, error)
                return
            logging.getLogger(__name__).warning("The callback of task %d was not taken: %s", job.id, error)
            self.queue.end([claim], "failed", str(error))
        else:
            self.queue.end([claim])

    def _retry_later(self, claim: Claim, error: EgressError) -> None:
        # After the last attempt the queue parks the job, so its wait counts for nothing.
        wait_s = (*WAITS_S, 0.0)[min(claim.token, len(WAITS_S) + 1) - 1] * uniform(0.8, 1.2)
        # A receiver's Retry-After counts, up to a day: `SET_BACK` of the queue takes a callback that is due in more
        # than two days for one that was put before the clock was set back.
        self.queue.retry([claim], str(error), max(wait_s, min(error.after_s, DAY_S)), len(WAITS_S) + 1)


def secret_damage(file: Path) -> str:
    """Describe how Spolia's own secret was changed; empty if intact. A user's own secret has no checksum."""
    text = file.read_bytes()
    if text.startswith(PREFIX.encode()) and len(text) != len(PREFIX) + 48:
        return ""
    with suppress(ValueError):
        decoded = b64decode(text[len(PREFIX) :], validate=True)
        if text.startswith(PREFIX.encode()) and crc32(decoded[:32]) == int.from_bytes(decoded[32:], "big"):
            return ""
    return f"{file} is damaged: it is not the secret that was written. Restore it from a backup, or remove it."


def task_data(job: Job) -> dict[str, Any]:
    """Return a task as plain data."""
    return {
        "task": job.id, "change": job.kind, "document": job.payload["name"], "state": job.state, "reason": job.reason,
        "made": job.made, "ended": job.ended or None,
    }  # fmt: skip


def callback_body(job: Job) -> dict[str, Any]:
    """Return the body of a callback."""
    return {
        "type": f"task.{job.state}", "timestamp": datetime.fromtimestamp(job.ended, UTC).isoformat(),
        "data": task_data(job),
    }  # fmt: skip


def sign_headers(secret: str, id: str, timestamp: int, body: bytes) -> Mapping[str, str]:
    """Return the headers of a callback, with its signature.

    >>> sign_headers("whsec_c2VjcmV0", "task_1", 0, b"{}")["webhook-signature"]
    'v1,JxuCPNVhuthR0rHwN7s05nVP0QemomrOHcxv7XuWaV8='
    """
    digest = hmac.digest(b64decode(secret.removeprefix(PREFIX)), f"{id}.{timestamp}.".encode() + body, "sha256")
    return {
        "webhook-id": id, "webhook-timestamp": str(timestamp), "webhook-signature": f"v1,{b64encode(digest).decode()}",
    }  # fmt: skip


@contextmanager
def _create_private_file(file: Path) -> Iterator[Any]:
    """Create a file that only the user can read; it appears only when it is complete."""
    make_folder(file.parent)
    part = file.with_name(f".{file.name}.{secrets.token_hex(4)}")
    with open(part, "x", encoding="ascii", opener=private) as out:
        yield out
    try:
        os.link(part, file)  # fails if the file exists; a rename would replace the other process's secret
    except FileExistsError:
        pass  # another process has made it meanwhile: its secret holds, and is read by the caller
    finally:
        part.unlink()
