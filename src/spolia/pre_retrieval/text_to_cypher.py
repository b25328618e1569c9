"""A question as a statement in Cypher."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from spolia.models.protocols import LanguageModel
from spolia.models.role import Role
from spolia.pre_retrieval.asking import NOTHING
from spolia.pre_retrieval.statements import DESCRIBED, LIMITS, AsksInStatements, Statement
from spolia.stores.outside.database import Asked
from spolia.stores.outside.rows import Limits

WRITTEN: Role[str] = Role("spolia:pre_retrieval/prompts/text_to_cypher.txt", Statement(), default=NOTHING)


@dataclass(frozen=True)
class TextToCypher(AsksInStatements):
    """Answer a question by one MATCH … RETURN that a language model writes: q → rows.

    The model sees which labels and properties there are, some names, and what links what. What it writes is run by a
    reader that knows no clause that writes or calls (`spolia.stores.outside.cypher`). What is refused, or cannot be
    computed, is shown to the model with the reason, `tries` times.

    Args:
        llm: the language model.
        graph: `GraphFile`.
        tries: further statements after one that fails.
        limits: rows, characters and seconds that one statement may take.
        characters: of the description of the graph that are shown, at most.
        role: prompt, with the places `{{described}}` and `{{failed}}` too, reader and default (`AsksOfQuery`).
        max_tokens: longest statement.
        temperature: 0 for the most probable statement.

    Raises:
        StatementError: when it runs: no statement could be run. With `Guard` another way is taken then.
        StoreError: the graph cannot be read.

    Source: Gao et al., "Modular RAG: Transforming RAG Systems into LEGO-like Reconfigurable Frameworks", 2024, query
    construction; Francis et al., "Cypher: an evolving query language for property graphs", SIGMOD 2018.

    >>> import json, tempfile
    >>> path = tempfile.mkdtemp() + "/people.json"
    >>> nodes = [{"id": "o", "properties": {"name": "Olsen"}}, {"id": "n", "properties": {"name": "Nokia"}}]
    >>> links = [{"type": "WORKS_AT", "from": "o", "to": "n"}]
    >>> with open(path, "w") as file:
    ...     json.dump({"nodes": nodes, "relationships": links}, file)
    >>> from spolia.models.scripted import ScriptedModel
    >>> from spolia.stores.outside.graph_file import GraphFile
    >>> from spolia.types import Query
    >>> model = ScriptedModel(("MATCH ({name: 'Olsen'})-[:WORKS_AT]->(firm) RETURN firm.name AS firm",))
    >>> TextToCypher(model, GraphFile(path))(Query("Who employs Olsen?")).rows
    (('Nokia',),)
    """

    llm: LanguageModel
    graph: Asked
    tries: int = 2
    limits: Limits = LIMITS
    characters: int = DESCRIBED
    role: Role[str] = WRITTEN
    max_tokens: int = 512
    temperature: float = 0.0

    version: ClassVar[int] = 2

    @property
    def asked(self) -> Asked:
        return self.graph
