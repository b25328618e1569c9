"""2WikiMultihopQA: Ho et al. 2020, "Constructing A Multi-hop QA Dataset for Evaluation of Reasoning Steps"."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from spolia.errors import DataError
from spolia.evaluation.formats.hotpotqa import HotpotQA
from spolia.evaluation.formats.pooled import has_fields
from spolia.types import Document, Item, SubQuestion

OF = " >> "


class TwoWiki(HotpotQA):
    """As HotpotQA, with evidences: triples of subject, relation, object, which are the hops."""

    called: ClassVar[str] = "2wikimultihopqa"
    files: ClassVar[str] = "one file of JSON, with context, supporting_facts and evidences"
    more: ClassVar[tuple[str, ...]] = ("evidences",)

    def fits(self, path: Path) -> bool:
        return has_fields(path, "_id", "context", "supporting_facts", "evidences")

    def steps(self, place: str, row: Mapping[str, Any], ids: Mapping[str, str]) -> tuple[SubQuestion, ...]:
        try:
            triples = [(str(one), str(relation), str(other)) for one, relation, other in row.get("evidences") or ()]
        except (TypeError, ValueError):
            raise DataError(f"{place}: 'evidences' is not [[subject, relation, object], …].") from None
        return tuple(SubQuestion(f"{one}{OF}{relation}", other, ids.get(one, "")) for one, relation, other in triples)

    def row(self, item: Item, context: Sequence[Document]) -> dict[str, Any]:
        steps = ((*one.question.rpartition(OF)[::2], one.answer) for one in item.decomposition)
        return super().row(item, context) | {"evidences": [list(step) for step in steps]}
