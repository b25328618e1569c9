"""A statement run over a graph, clause by clause: its patterns found, its expressions evaluated for each row."""

from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import Any

from spolia.databases.cypher import functions
from spolia.databases.cypher.functions import AGGREGATES, compared, key_of, rank, shown
from spolia.databases.cypher.parser import (
    Clause,
    Exists,
    Expression,
    FunctionCall,
    LinkPattern,
    Literal,
    Match,
    NodePattern,
    Operation,
    Pattern,
    Project,
    Unwind,
    Variable,
    Wanted,
    clauses_of,
)
from spolia.databases.database import QueryLimits, QueryRows
from spolia.databases.graph_file import Entity, PropertyGraph, Relation
from spolia.errors import StatementError

Row = dict[str, Any]
Used = frozenset[Relation]
GROUP = "\0group"
"""Where a row that stands for a group has the rows of it."""


def answered(statement: str, graph: PropertyGraph, limits: QueryLimits) -> QueryRows:
    """The rows that a reading statement gives.

    >>> from spolia.databases.graph_file import Entity, Relation
    >>> people = (Entity("o", ("Person",), (("name", "Olsen"),)), Entity("n", ("Firm",), (("name", "Nokia"),)))
    >>> graph = PropertyGraph(people, (Relation("WORKS_AT", "o", "n"),))
    >>> asked = "MATCH (p:Person {name: 'Olsen'})-[:WORKS_AT]->(f) RETURN f.name AS firm"
    >>> answered(asked, graph, QueryLimits()).rows
    (('Nokia',),)
    """
    clauses = clauses_of(statement)
    running = _Execution(graph)
    try:
        rows = iter([Row()])
        for clause in clauses:
            rows = running.after(clause, rows)
        first = next(rows, None)
        last = clauses[-1]
        assert isinstance(last, Project)
        columns = list(first) if first is not None else [name for name, _ in last.items]
        told = (tuple(shown(row[name]) for name in columns) for row in ([] if first is None else chain([first], rows)))
        return QueryRows.read(columns, told, statement, limits)
    except RecursionError as error:
        raise StatementError("The statement is nested too deeply. Write a simpler one.") from error


class _Execution:
    """Nothing here looks at a clock: the process that it runs in is killed."""

    def __init__(self, graph: PropertyGraph) -> None:
        self.graph = graph

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
            for found in self.found(clause.patterns, row):
                if self.holds(clause.where, found):
                    is_found = True
                    yield found
            if clause.optional and not is_found:
                yield {**dict.fromkeys(names), **row}

    def _unwound(self, clause: Unwind, rows: Iterator[Row]) -> Iterator[Row]:
        for row in rows:
            values = self.value(clause.of, row)
            for value in values if isinstance(values, list) else [] if values is None else [values]:
                yield {**row, clause.name: value}

    def _projected(self, clause: Project, rows: Iterator[Row]) -> Iterator[Row]:
        grouped = self._grouped(clause, rows) if any(aggregates(of) for _, of in clause.items) else rows
        pairs: Iterator[tuple[Row, Row]] = ((row, self._items(clause, row)) for row in grouped)
        if clause.distinct:
            pairs = self._told_apart(pairs)
        if clause.order:
            pairs = self._sorted(clause, pairs)
        begin = self._count(clause.skip)
        end = None if clause.limit is None else begin + self._count(clause.limit)
        for _, items in islice(pairs, begin, end):
            if self.holds(clause.where, items):
                yield items

    def _items(self, clause: Project, row: Row) -> Row:
        before = {name: value for name, value in row.items() if name != GROUP} if clause.everything else {}
        return before | {name: self.value(of, row) for name, of in clause.items}

    def _grouped(self, clause: Project, rows: Iterable[Row]) -> Iterator[Row]:
        """One row for each group of rows that agree in what is not aggregated."""
        plain = [of for _, of in clause.items if not aggregates(of)]
        groups: dict[Any, list[Row]] = {}
        for row in rows:
            groups.setdefault(tuple(key_of(self.value(of, row)) for of in plain), []).append(row)
        if not groups and not plain:
            yield {GROUP: []}
        for some in groups.values():
            yield {**some[0], GROUP: some}

    def _told_apart(self, pairs: Iterable[tuple[Row, Row]]) -> Iterator[tuple[Row, Row]]:
        seen: set[Any] = set()
        for row, items in pairs:
            key = tuple(key_of(value) for value in items.values())
            if key not in seen:
                seen.add(key)
                yield row, items

    def _sorted(self, clause: Project, pairs: Iterable[tuple[Row, Row]]) -> Iterator[tuple[Row, Row]]:
        found = list(pairs)
        names = {item: Variable(name) for name, item in reversed(clause.items)}  # sorted by what stands in the result
        for of, down in reversed(clause.order):
            by = names.get(of, of)
            found.sort(key=lambda pair: rank(self.value(by, pair[0] | pair[1])), reverse=down)
        return iter(found)

    def _count(self, of: Expression | None) -> int:
        found = 0 if of is None else self.value(of, {})
        if not isinstance(found, int) or isinstance(found, bool) or found < 0:
            raise StatementError(f"SKIP and LIMIT count, and {found!r:.40} is not a count. Write a whole number.")
        return found

    # Expressions.

    def value(self, of: Expression, row: Row) -> Any:
        match of:
            case Literal(value=value):
                return value
            case Variable(name=name):
                if name not in row:
                    known = ", ".join(one for one in row if one != GROUP)
                    raise StatementError(f"There is no variable {name!r} here. There are: {known or 'none'}.")
                return row[name]
            case Operation(mark=mark, arguments=arguments):
                return self._result(mark, [self.value(one, row) for one in arguments])
            case FunctionCall():
                return self._call(of, row)
            case Exists(pattern=pattern):
                return next(self.found((pattern,), row), None) is not None

    def holds(self, of: Expression | None, row: Row) -> bool:
        """Whether a condition is known to hold; no condition always does."""
        return of is None or _truth(self.value(of, row)) is True

    def _result(self, mark: str, values: list[Any]) -> Any:
        if mark == "list":
            return values
        if mark == "[]":
            return _item(*values)
        if len(values) == 1:
            return _unary(mark, *values)
        left, right = values
        if mark in ("and", "or", "xor"):
            return _joined(mark, _truth(left), _truth(right))
        if mark in ("in", "contains", "starts", "ends"):
            return functions.held(mark, left, right)
        return functions.computed(mark, left, right) if mark in "+-*/%" else compared(mark, left, right)

    def _call(self, of: FunctionCall, row: Row) -> Any:
        if of.name not in AGGREGATES:
            return functions.called(of.name, [self.value(argument, row) for argument in of.arguments])
        if GROUP not in row:
            raise StatementError(
                f"{of.name} is allowed in RETURN and WITH only. Write WITH {of.name}(…) AS n WHERE n > 1."
            )
        if not of.arguments:
            return len(row[GROUP])
        values = (self.value(of.arguments[0], one) for one in row[GROUP])
        return functions.aggregated(
            of.name, {key_of(value): value for value in values}.values() if of.distinct else values
        )

    # Patterns.

    def found(self, patterns: tuple[Pattern, ...], row: Row, used: Used = frozenset()) -> Iterator[Row]:
        """The row with the variables of the patterns, once for each way."""
        if not patterns:
            yield row
            return
        for further, taken in self._begun(patterns[0], row, used):
            yield from self.found(patterns[1:], further, taken)

    def _begun(self, pattern: Pattern, row: Row, used: Used) -> Iterator[tuple[Row, Used]]:
        first = pattern.nodes[0]
        bound = row.get(first.name) if first.name else None
        if first.name in row and not isinstance(bound, Entity):
            if bound is not None:
                raise StatementError(f"{first.name!r} is not a node. Write another name for the node.")
            return
        for entity in (bound,) if isinstance(bound, Entity) else self.graph.entities:
            if self._fits(first, entity, row):
                yield from self._further(pattern, 0, entity, _with(row, first.name, entity), used)

    def _further(self, pattern: Pattern, at: int, entity: Entity, row: Row, used: Used) -> Iterator[tuple[Row, Used]]:
        """From the node at a place of the pattern along its links."""
        if at == len(pattern.links):
            yield row, used
            return
        link, node = pattern.links[at], pattern.nodes[at + 1]
        for path, end in self._paths(link, entity, row, used):
            if node.name in row and row[node.name] != end:
                continue
            if self._fits(node, end, row):
                held = path if link.lengths else path[0]
                further = _with(_with(row, link.name, held), node.name, end)
                yield from self._further(pattern, at + 1, end, further, used | frozenset(path))

    def _paths(
        self, link: LinkPattern, entity: Entity, row: Row, used: Used
    ) -> Iterator[tuple[list[Relation], Entity]]:
        """Relationships in a row that a link stands for, with the node at their end."""
        least, most = link.lengths or (1, 1)
        open_: list[tuple[list[Relation], Entity]] = [([], entity)]
        while open_:
            path, end = open_.pop()
            if len(path) >= least:
                yield path, end
            if len(path) < most:
                found = list(self.graph.around(end.id, link.direction))
                for relation, other in reversed(found):
                    if self._links(link, relation, row) and relation not in used and relation not in path:
                        open_.append(([*path, relation], other))

    def _fits(self, node: NodePattern, entity: Entity, row: Row) -> bool:
        return set(node.labels) <= set(entity.labels) and self._holds(node.properties, entity, row)

    def _links(self, link: LinkPattern, relation: Relation, row: Row) -> bool:
        return (not link.types or relation.type in link.types) and self._holds(link.properties, relation, row)

    def _holds(self, wanted: Wanted, holder: Entity | Relation, row: Row) -> bool:
        has = dict(holder.properties)
        return all(compared("=", has.get(key), self.value(of, row)) is True for key, of in wanted)


def aggregates(of: Expression) -> bool:
    """Whether an expression has an aggregate in it."""
    if isinstance(of, FunctionCall) and of.name in AGGREGATES:
        return True
    return isinstance(of, FunctionCall | Operation) and any(map(aggregates, of.arguments))


def _item(of: Any, index: Any) -> Any:
    if of is None or index is None:
        return None
    if isinstance(index, str):
        return functions.property_of(of, index)
    if not isinstance(of, list) or not isinstance(index, int):
        raise StatementError("The value before [ is not a list. Write the name of a list.")
    return of[index] if -len(of) <= index < len(of) else None


def _unary(mark: str, value: Any) -> Any:
    if mark in ("is null", "is not null"):
        return (value is None) == (mark == "is null")
    if mark == "not":
        truth = _truth(value)
        return None if truth is None else not truth
    return functions.computed("-", 0, value)


def _truth(value: Any) -> bool | None:
    if value is None or isinstance(value, bool):
        return value
    raise StatementError(f"{str(value)!r:.40} is neither true nor false. Write a comparison.")


def _joined(mark: str, left: bool | None, right: bool | None) -> bool | None:
    """Truths put together, of which one may not be known."""
    if mark == "xor":
        return None if left is None or right is None else left != right
    decides = mark == "or"
    if left is decides or right is decides:
        return decides
    return None if left is None or right is None else not decides


def _with(row: Row, name: str, value: Any) -> Row:
    return {**row, name: value} if name else row
