"""Nothing but `spolia.egress` may ask anybody: whatever else could is refused by the linter."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def is_refused(code: str, path: str) -> bool:
    command = [sys.executable, "-m", "ruff", "check", "--quiet", "--select", "TID251", "--stdin-filename", path, "-"]
    return subprocess.run(command, cwd=ROOT, input=code, text=True, capture_output=True).returncode == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "code",
    [
        "import urllib3", "from urllib.request import urlopen", "import http.client", "import ftplib", "import imaplib",
        "import poplib", "import smtplib", "import xmlrpc.client", "import requests", "import httpx", "import aiohttp",
        "import websockets", "import httplib2", "import pycurl", "import paramiko",
        "import socket\nsocket.create_connection(('a', 1))", "from socket import socket",
        "import asyncio\nasyncio.open_connection('a', 1)",
    ],
)  # fmt: skip
def test_no_other_client_is_allowed(code: str) -> None:
    pytest.importorskip("ruff")
    assert is_refused(f"{code}\n", "src/spolia/indexing/sources/asking.py")
    assert not is_refused(f"{code}\n", "src/spolia/egress/asking.py")
