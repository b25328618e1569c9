"""What all tests share: where real data lies, and a cache of their own."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.stores.servers import Server

BESIDE = Path(__file__).resolve().parents[1].parent / "shared" / "datasets"


@pytest.fixture(scope="session")
def shared_datasets() -> Path:
    """The folder of real data sets: `SPOLIA_DATASETS`, else `../shared/datasets` beside the checkout."""
    folder = Path(os.environ.get("SPOLIA_DATASETS") or BESIDE)
    if not folder.is_dir():
        pytest.skip(f"needs the data sets: no folder {folder}; set SPOLIA_DATASETS to where they are")
    return folder


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test reads or writes the user's cache directory."""
    monkeypatch.setenv("SPOLIA_CACHE", str(tmp_path_factory.getbasetemp() / "spolia-cache"))


MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Tests of a module with `BACKENDS` run for stores of each of these kinds, unless they name one themselves."""
    backends = getattr(metafunc.module, "BACKENDS", ())
    is_parametrized = any("address" in mark.args[0] for mark in metafunc.definition.iter_markers("parametrize"))
    if backends and "address" in metafunc.fixturenames and not is_parametrized:
        metafunc.parametrize("address", backends, indirect=True)


@pytest.fixture
def fast_folder() -> Iterator[Path]:
    """A folder in memory where there is one: a killed process does not tell it from a disk, and fsync costs nothing."""
    folder = Path(tempfile.mkdtemp(prefix="spolia-", dir=MEMORY))
    folder.chmod(0o755)  # for tests that read as somebody else
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """A PostgreSQL server of our own."""
    from tests.stores.servers import Server

    folder = Path(tempfile.mkdtemp(prefix="spolia-", dir=MEMORY))
    try:
        new_server = Server(folder)
    except Exception as error:
        shutil.rmtree(folder, ignore_errors=True)
        pytest.skip(f"no PostgreSQL server could be started here: {error!r}")
    yield new_server
    new_server.stop("immediate")
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def address(request: pytest.FixtureRequest, fast_folder: Path) -> Iterator[str]:
    """Where a store can be made: in a folder, or in a schema of the server."""
    if getattr(request, "param", "folder") == "folder":
        yield str(fast_folder / "notes.spolia")
        return
    server: Server = request.getfixturevalue("server")
    new_address = server.address()
    yield new_address
    from spolia.stores import open_store
    from spolia.stores.corpus import backend_of

    open_store._open.pop(backend_of(new_address).place, None)  # its connections, of which the server gives a hundred
