"""Downloads of weights: from the model hub alone, through its own client if that is installed."""

import os
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

from spolia.deferred import huggingface_hub
from spolia.egress.addresses import open_socket

PROBE_TIMEOUT_S = 2.0


def download(repository: str, files: tuple[str, ...], revision: str = "") -> Path | str:
    """Return the folder that holds files (names or patterns) of a repository at a commit, or why they could not be
    fetched."""
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE"):
        return "not asked, because HF_HUB_OFFLINE is set"
    if find_spec("huggingface_hub") is None:
        return "not asked, because its client huggingface_hub is not installed"
    endpoint = os.environ.get("HF_ENDPOINT") or "https://huggingface.co"
    if not _is_reachable(endpoint):
        return f"not reachable at {urlsplit(endpoint).hostname}"

    try:
        folder = huggingface_hub.snapshot_download(
            repository,
            revision=revision or None,
            allow_patterns=list(files),
            etag_timeout=PROBE_TIMEOUT_S * 2,
        )
    except Exception as error:  # the client raises its own, its transport's and the system's errors
        return f"reached, but failed with {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    return Path(folder)


@lru_cache(maxsize=4)  # once a process: without a network each probe takes `PROBE_TIMEOUT_S`
def _is_reachable(endpoint: str) -> bool:
    """Return whether the hub answers: the client itself would try for minutes on a machine without a network."""
    # Behind a proxy a direct connection fails although the client can reach the hub.
    if any(os.environ.get(name) for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")):
        return True
    url = urlsplit(endpoint)
    try:
        open_socket(url.hostname or "", url.port or 443, PROBE_TIMEOUT_S, public=False).close()
    except OSError:
        return False
    return True
