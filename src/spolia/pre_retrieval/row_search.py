"""Rows of a database as evidence and as filters."""

from dataclasses import dataclass

from spolia.core.operator import Operator
from spolia.core.run_context import note
from spolia.databases.database import QueryRows
from spolia.errors import StepFailed, WiringError
from spolia.filters import AnyOf, combine_filters
from spolia.types import Hit, Node, Query, Ranking


@dataclass(frozen=True)
class ShowRows(Operator[QueryRows, Ranking]):
    """The rows of a database as one passage: the table, with the statement above it as its source.

    What a statement found nothing for is a passage too, that says so. Without a statement there is no hit.

    Args:
        source: name of the ranking, for weights when it is fused.

    Source: Gao et al., "Modular RAG", 2024 (arXiv 2407.21059), query construction.

    >>> rows = QueryRows(("born",), ((1968,),), "SELECT born FROM person", query=Query("When?"), uri="people.db")
    >>> found = ShowRows()(rows)
    >>> print(found.nodes[0].text)
    | born |
    |---|
    | 1968 |
    >>> found.nodes[0].context, found.nodes[0].uri
    ('SELECT born FROM person', 'people.db')
    """

    source: str = "rows"

    def apply(self, value: QueryRows, /) -> Ranking:
        query = value.query or Query("")
        if not value.statement:
            return Ranking(query, (), self.source)
        more = "\n(There are more rows.)" if value.cut else ""
        text = value.to_markdown() + more if value.rows else "(The statement found no rows.)"
        # without the query: equal rows are one passage, whoever asked for them
        id = f"rows-{value.but(query=None).digest.hex()}"
        return Ranking(
            query, (Hit(Node(id, text, id, "rows", context=value.statement, uri=value.uri), 1.0),), self.source
        )


@dataclass(frozen=True)
class WithinRows(Operator[Query, Query]):
    """Search only documents whose metadata are among the values of a column: q → (q, field ∈ column of rows(q)).

    So a structured query says which documents count, and the search by words or meaning behind it what they say.

    Args:
        rows: gives the rows for a query: `TextToSQL`, `TextToCypher`, or a step of your own.
        field: the metadata field, which the store declares.
        column: of the rows; empty for the first.
        otherwise: where no statement was written or no row found: `nothing` searches among nothing, `all` among
            everything, which is recorded.

    Raises:
        StepFailed: when it runs: the rows lack the column.

    Source: Gao et al., "Modular RAG", 2024 (arXiv 2407.21059), query construction.

    >>> from spolia.core.function import step
    >>> @step
    ... def selected(query: Query) -> QueryRows:
    ...     return QueryRows(("sku",), (("A7",), ("B2",)), "SELECT sku FROM product WHERE price < 10")
    >>> WithinRows(selected, "sku")(Query("waterproof boots")).filter
    AnyOf(field='sku', values=('A7', 'B2'))
    """

    rows: Operator[Query, QueryRows]
    field: str
    column: str = ""
    otherwise: str = "nothing"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.otherwise not in ("nothing", "all"):
            raise WiringError(f"{self.short}: otherwise is {self.otherwise!r}. Write 'nothing' or 'all'.")

    def apply(self, value: Query, /) -> Query:
        result = self.rows(value)
        if result.cut:
            note(
                f"The statement gives more rows than its limits let through; the search is among {len(result)} of them."
            )
        column_values = (
            tuple(dict.fromkeys(row[self._column_index(result)] for row in result.rows)) if result.rows else ()
        )
        if not column_values and self.otherwise == "all":
            note("No row was found; the search is among everything.")
            return value
        return value.but(filter=combine_filters(value.filter, AnyOf(self.field, column_values)), origin=value)

    def _column_index(self, result: QueryRows) -> int:
        # databases change the case of names without quotes, each in its way
        names = [name.lower() for name in result.columns]
        if self.column and self.column.lower() not in names:
            raise StepFailed(
                f"The statement gave the columns {', '.join(result.columns)}, but not {self.column!r}: "
                f"{result.statement[:200]}. Write another column, or say in the prompt how to name it."
            )
        return names.index(self.column.lower()) if self.column else 0

    def calls(self, rows: int | None = None, /) -> int | None:
        return self.rows.calls(rows)
