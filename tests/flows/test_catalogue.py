"""Every operator and address of Spolia is found by its id, and no id means two things."""

from __future__ import annotations

import subprocess
import sys

import pytest

from spolia.core.codec import type_id
from spolia.core.registry import BUILT_IN, NOUNS, Catalogue
from tests.tree import written_in_flows


def test_the_table_names_everything_that_a_flow_file_may_name() -> None:
    modules = {type_id(cls): cls.__module__ for cls in written_in_flows() if type_id(cls) not in NOUNS}
    assert dict(sorted(modules.items())) == dict(sorted(BUILT_IN.items()))


def test_no_id_means_two_things() -> None:
    ids = [type_id(cls) for cls in written_in_flows()]
    assert len(ids) == len(set(ids))
    assert not set(BUILT_IN) & set(NOUNS)


def test_every_id_leads_to_its_class() -> None:
    catalogue = Catalogue()
    for name in (*BUILT_IN, *NOUNS):
        assert type_id(catalogue[name]) == name
    assert "Nothing" not in catalogue
    assert len(catalogue) >= len(BUILT_IN) + len(NOUNS)


@pytest.mark.slow
def test_a_lookup_imports_only_the_module_of_what_is_looked_up() -> None:
    code = (
        "import sys; from spolia.flow_files.files import load; load('Identity'); "
        "print([name for name in sys.modules if name.startswith(('spolia.retrieval', 'spolia.generation', 'numpy'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
