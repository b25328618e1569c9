"""A plan that follows the relationships of a knowledge graph."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from spolia.core.operator import Operator
from spolia.core.run_context import note
from spolia.core.type_compatibility import refuse_counts
from spolia.databases.graph_file import Entity, GraphFile, PropertyGraph
from spolia.types import Plan, Query

_MAX_RELATIONSHIPS = 20_000  # relationships that are looked at for one question
_MIN_SHARED_LETTERS = (
    4  # letters that two words begin with, at least, to be the same in another form: `works`, `worked`
)
Edge = tuple[str, bool]  # a type of relationship, and whether it is gone along from its start to its end


@dataclass(frozen=True)
class KnowledgeGuided(Operator[Query, Plan]):
    """Plan a question by a path in a graph: each relationship on it is a step, from what the question names.

    From each node whose name occurs in the question, paths of at most `hops` relationships are followed, both ways. The
    path counts that has most types that the question mentions, one more where it ends at another node that it names;
    between equals the shorter one, then that from what is named first. A type is mentioned where the question has a
    word that begins like one of its words. `LeastToMost` takes the steps, so that documents answer them: the graph only
    says what to ask.

    Args:
        graph: a knowledge graph.
        hops: h, relationships in a row.
        fallback: plans a question for which there is no path; without it, it has no steps.

    Raises:
        StoreError: the graph cannot be read.

    Source: Luo et al., "Reasoning on graphs: faithful and interpretable large language model reasoning", ICLR 2024
    (paths as plans; here found by the words of the question, without a model).

    >>> import json, tempfile
    >>> path = tempfile.mkdtemp() + "/people.json"
    >>> nodes = [{"id": name, "properties": {"name": name}} for name in ("Olsen", "Nokia", "Salo")]
    >>> links = [("EMPLOYED_BY", "Olsen", "Nokia"), ("LOCATED_IN", "Nokia", "Salo")]
    >>> with open(path, "w") as file:
    ...     relationships = [{"type": kind, "from": start, "to": end} for kind, start, end in links]
    ...     json.dump({"nodes": nodes, "relationships": relationships}, file)
    >>> plan = KnowledgeGuided(GraphFile(path))(Query("Where is located whom Olsen was employed by?"))
    >>> plan.steps
    ('Olsen employed by what?', '#1 located in what?')
    """

    graph: GraphFile
    hops: int = 3
    fallback: Operator[Query, Plan] | None = None

    def __post_init__(self) -> None:
        refuse_counts(self, "hops")
        super().__post_init__()

    def apply(self, value: Query, /) -> Plan:
        graph = self.graph.graph()
        words = _words(value.text)
        entities = find_named_entities(graph, words)
        mentioned = {kind for kind in graph.types if _is_mentioned(words, kind)}
        best: tuple[int, int, int, list[Edge]] | None = None
        for path, start, end in self._paths(graph, entities):
            score = len({kind for kind, _ in path} & mentioned) + (end in entities and end != start)
            rank = (-score, len(path), entities.index(start), path)
            if score and (best is None or rank < best):
                best = rank
        if best is not None:
            return Plan(value, _write_steps(entities[best[2]], best[3]))
        note(f"There is no path for the question from {', '.join(entity.name for entity in entities) or 'any node'}.")
        return Plan(value) if self.fallback is None else self.fallback(value)

    def _paths(self, graph: PropertyGraph, entities: list[Entity]) -> Iterator[tuple[list[Edge], Entity, Entity]]:
        """Yield paths from the named entities; no path passes a node twice."""
        room = _MAX_RELATIONSHIPS
        open_: list[tuple[list[Edge], Entity, tuple[Entity, ...]]] = [([], entity, (entity,)) for entity in entities]
        while open_:
            # first in, first out: all short paths come before the bound ends the search
            path, start, through = open_.pop(0)
            if path:
                yield path, start, through[-1]
            for relation, neighbour in graph.neighbours(through[-1].id) if len(path) < self.hops else ():
                room -= 1
                if room < 0:
                    note(
                        f"The graph is dense: only {_MAX_RELATIONSHIPS} relationships around the named entities are "
                        "used."
                    )
                    return
                if neighbour not in through:
                    edge = relation.type, relation.start == through[-1].id
                    open_.append(([*path, edge], start, (*through, neighbour)))

    def calls(self, rows: int | None = None, /) -> int | None:
        return 0 if self.fallback is None else self.fallback.calls()


def find_named_entities(graph: PropertyGraph, words: list[str]) -> list[Entity]:
    """Return the nodes whose names occur in a question, in its order; a longer name wins over a shorter one in it."""
    text = f" {' '.join(words)} "
    by_name: dict[str, list[Entity]] = {}
    for entity in graph.entities:
        by_name.setdefault(f" {' '.join(_words(entity.name))} ", []).append(entity)
    by_position: dict[int, list[Entity]] = {}
    for name in sorted(by_name, key=lambda name: (-len(name), name)):
        if len(name) > 3 and name in text:  # 3 with the blanks around it: a name of one letter occurs in any question
            by_position[text.index(name)] = by_name[name]
            # Blanked out, not cut: a shorter name inside it does not count too, and places stay comparable.
            text = text.replace(name, " " * len(name))
    return [entity for place in sorted(by_position) for entity in by_position[place]]


def _write_steps(start: Entity, path: list[Edge]) -> tuple[str, ...]:
    """Write one question for each relationship; from the second on, about the previous answer."""
    steps = []
    for number, (kind, forward) in enumerate(path):
        # a name like `#1` would stand for an answer
        about = f"#{number}" if number else start.name.replace("#", "")
        relation_words = " ".join(_words(kind))
        steps.append(f"{about} {relation_words} what?" if forward else f"What {relation_words} {about}?")
    return tuple(steps)


def _is_mentioned(question_words: list[str], kind: str) -> bool:
    words = _words(kind)
    content_words = [word for word in words if len(word) >= _MIN_SHARED_LETTERS] or words
    return any(_is_same_word(word, question_word) for word in content_words for question_word in question_words)


def _is_same_word(first: str, second: str) -> bool:
    """Return whether two words are forms of one: most of their letters, from the first, are the same."""
    shared = next(
        (index for index, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), min(len(first), len(second))
    )
    return (
        first == second
        if min(len(first), len(second)) < _MIN_SHARED_LETTERS
        else shared >= max(_MIN_SHARED_LETTERS, 0.6 * max(len(first), len(second)))
    )


def _words(text: str) -> list[str]:
    return re.findall(r"[^\W_]+", text.casefold())
