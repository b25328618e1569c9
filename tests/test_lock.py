"""The lock pins, with hashes, what pyproject.toml needs; the SBOM says the same; an audit that saw nothing says so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.audit import verdict
from tests.lock import DEMO, DEMO_LOCK, UNHASHED, needed_packages, pin, pins, project
from tests.release import write_sbom

LEFT_OUT = ("xberg", "docling", "pandoc", "gguf", "lancedb[")
"""Extras that no test installs."""


def test_every_pin_has_hashes_and_fits_what_the_project_needs() -> None:
    locked, requirements_by_extra = pins(), project()
    assert all("--hash=sha256:" in entry for entries in locked.values() for entry in entries)
    for extra, requirements in requirements_by_extra.items():
        for requirement in map(Requirement, requirements):
            name = canonicalize_name(requirement.name)
            if extra in LEFT_OUT or name in (UNHASHED, "spolia"):
                continue
            assert name in locked, f"{name} of {extra or 'the base'}: write it into requirements.lock, then `make lock`"
            versions = [pin(entry).partition(";")[0].partition("==")[2].strip() for entry in locked[name]]
            assert any(requirement.specifier.contains(version) for version in versions), (requirement, versions)


@pytest.mark.slow
def test_the_lock_of_the_demo_is_the_part_that_it_needs() -> None:
    locked, requirements_by_extra = pins(), project()
    names = needed_packages(
        [requirement for extra in ("", *DEMO) for requirement in requirements_by_extra[extra]], locked
    )
    assert pins(DEMO_LOCK) == {name: locked[name] for name in names}


@pytest.mark.slow
def test_the_sbom_has_each_pinned_package_with_its_hashes(tmp_path: Path) -> None:
    pytest.importorskip("cyclonedx_py", reason="cyclonedx-bom is not installed")
    sbom = json.loads(write_sbom(tmp_path, DEMO_LOCK).read_text())  # the whole lock takes 14 CPU-s
    assert (sbom["bomFormat"], sbom["metadata"]["component"]["name"]) == ("CycloneDX", "spolia")
    assert {canonicalize_name(component["name"]) for component in sbom["components"]} == pins(DEMO_LOCK).keys()
    assert "sha256:" in json.dumps(sbom) or "SHA-256" in json.dumps(sbom)


@pytest.mark.parametrize(
    ("found", "code", "said"),
    [
        ("", 0, "Skipped: the database"),
        ('{"dependencies": [{"name": "a", "skip_reason": "r"}]}', 0, "Skipped: no package"),
        ('{"dependencies": [{"name": "a", "version": "1", "vulns": []}]}', 0, "No known hole in 1 packages."),
        (
            '{"dependencies": [{"name": "a", "version": "1", "vulns": [{"id": "C", "fix_versions": ["2"]}]}]}',
            1,
            "a 1: C",
        ),
    ],
)
def test_an_audit_that_could_look_up_nothing_is_skipped_not_passed(found: str, code: int, said: str) -> None:
    assert verdict(found, "offline")[0] == code
    assert said in verdict(found, "offline")[1]
