"""A statement run over a graph, clause by clause."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from spolia.databases.cypher.evaluation import GROUP, Evaluator, Row, aggregates
from spolia.databases.cypher.functions import Matcher, key_of, rank, shown
from spolia.databases.cypher.meter import Meter
from spolia.databases.cypher.parser import clauses_of
from spolia.databases.cypher.syntax import Clause, Expression, Match, Project, Unwind, Variable
from spolia.databases.database import QueryLimits, QueryRows
from spolia.databases.property_graph import PropertyGraph
from spolia.errors import StatementError


def answered(statement: str, graph: PropertyGraph, limits: QueryLimits) -> QueryRows:
    """The rows that a reading statement gives.

    Raises:
        StatementError: it writes, cannot be read or computed, or takes too long.

    >>> from spolia.databases.property_graph import Entity, Relation
    >>> people = (Entity("o", ("Person",), (("name", "Olsen"),)), Entity("n", ("Firm",), (("name", "Nokia"),)))
    >>> graph = PropertyGraph(people, (Relation("WORKS_AT", "o", "n"),))
    >>> asked = "MATCH (p:Person {name: 'Olsen'})-[:WORKS_AT]->(f) RETURN f.name AS firm"
    >>> answered(asked, graph, QueryLimits()).rows
    (('Nokia',),)
    """
    clauses = clauses_of(statement)
    running = _Execution(graph, Meter(limits.timeout_s))
    try:
        rows = iter([Row()])
        for clause in clauses:
            rows = running.after(clause, rows)
        first = next(rows, None)
        columns = _columns(clauses[-1], first)
        told = (tuple(shown(row[name]) for name in columns) for row in _all(first, rows))
        return QueryRows.read(columns, told, statement, limits)
    except RecursionError as error:
        raise StatementError("The statement is nested too deeply. Write a simpler one.") from error


def _columns(last: Clause, row: Row | None) -> list[str]:
    assert isinstance(last, Project)
    return list(row) if row is not None else [name for name, _ in last.items]


def _all(first: Row | None, rows: Iterator[Row]) -> Iterator[Row]:
    if first is not None:
        yield first
        yield from rows


class _Execution:
    def __init__(self, graph: PropertyGraph, meter: Meter) -> None:
        self.meter = meter
        self.matcher = Matcher(graph, meter)
        self.value = Evaluator(meter, lambda pattern, row: self.matcher.found((pattern,), row))
        self.matcher.value = self.value

    def after(self, clause: Clause, rows: Iterator[Row]) -> Iterator[Row]:
        """The rows that a clause makes of those before it."""
        match clause:
            case Match():
                return self._matched(clause, rows)
            case Unwind():
                return self._unwound(clause, rows)
            case Project():
                return self._projected(clause, rows)

    def _matched(self, clause: Match, rows: Iterator[Row]) -> Iterator[Row]:
        names = [node.name for pattern in clause.patterns for node in pattern.nodes if node.name]
        names += [link.name for pattern in clause.patterns for link in pattern.links if link.name]
        for row in rows:
            is_found = False
            for found in self.matcher.found(clause.patterns, row):
                if self.value.holds(clause.where, found):
                    is_found = True
                    yield found
            if clause.optional and not is_found:
                yield {**dict.fromkeys(names), **row}

    def _unwound(self, clause: Unwind, rows: Iterator[Row]) -> Iterator[Row]:
        for row in rows:
            values = self.value(clause.of, row)
            for value in values if isinstance(values, list) else [] if values is None else [values]:
                self.meter.step()
                yield {**row, clause.name: value}

    def _projected(self, clause: Project, rows: Iterator[Row]) -> Iterator[Row]:
        grouped = self._grouped(clause, rows) if any(aggregates(of) for _, of in clause.items) else rows
        pairs: Iterator[tuple[Row, Row]] = ((row, self._items(clause, row)) for row in grouped)
        if clause.distinct:
            pairs = self._told_apart(pairs)
        if clause.order:
            pairs = self._sorted(clause, pairs)
        begin = self._count(clause.skip, 0)
        end = None if clause.limit is None else begin + self._count(clause.limit, 0)
        for _, items in islice(pairs, begin, end):
            self.meter.step()
            if self.value.holds(clause.where, items):
                yield items

    def _items(self, clause: Project, row: Row) -> Row:
        before = {name: value for name, value in row.items() if name != GROUP} if clause.everything else {}
        return before | {name: self.value(of, row) for name, of in clause.items}

    def _grouped(self, clause: Project, rows: Iterable[Row]) -> Iterator[Row]:
        """One row for each group of rows that agree in what is not aggregated."""
        plain = [of for _, of in clause.items if not aggregates(of)]
        groups: dict[Any, list[Row]] = {}
        for row in rows:
            self.meter.keep()
            groups.setdefault(tuple(key_of(self.value(of, row)) for of in plain), []).append(row)
        if not groups and not plain:
            yield {GROUP: []}
        for held in groups.values():
            yield {**held[0], GROUP: held}

    def _told_apart(self, pairs: Iterable[tuple[Row, Row]]) -> Iterator[tuple[Row, Row]]:
        seen: set[Any] = set()
        for row, items in pairs:
            key = tuple(key_of(value) for value in items.values())
            if key not in seen:
                self.meter.keep()
                seen.add(key)
                yield row, items

    def _sorted(self, clause: Project, pairs: Iterable[tuple[Row, Row]]) -> Iterator[tuple[Row, Row]]:
        found = []
        for row, items in pairs:
            self.meter.keep()
            found.append((row, items))
        for of, down in reversed(clause.order):
            found.sort(key=lambda pair: rank(self.value(_named(of, clause), pair[0] | pair[1])), reverse=down)
        return iter(found)

    def _count(self, of: Expression | None, default: int) -> int:
        found = default if of is None else self.value(of, {})
        if not isinstance(found, int) or isinstance(found, bool) or found < 0:
            raise StatementError(f"SKIP and LIMIT count, and {found!r:.40} is no count. Write a whole number.")
        return found


def _named(of: Expression, clause: Project) -> Expression:
    """What is sorted by, by the name that it has in the result, where it stands there."""
    return next((Variable(name) for name, item in clause.items if item == of), of)
