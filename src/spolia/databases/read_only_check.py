"""A check that a statement in SQL only reads, made on its syntax tree before a database sees it.

An allow list, not a block list: one statement, which is a query; tables that were shown, their
columns, and functions that are known to compute. So a write cannot hide in a subquery, a common table expression, a
second statement, a table function or behind a comment.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any

from spolia.databases.database import format_columns
from spolia.deferred import exp, sqlglot
from spolia.errors import MissingExtra, StatementError, require

LONGEST = 10_000
"""Characters of a statement."""
_COMPUTE = """
    printf format total julianday quote strftime unixepoch datetime date time instr nullif ifnull iif typeof unicode
    char hex json json_array_length json_type json_valid glob likely unlikely ltrim rtrim trim btrim ascii age date_part
    isfinite to_char to_date to_timestamp to_number regexp_matches regexp_match bool_and bool_or every mode
    string_to_array cardinality array_position num_nonnulls num_nulls width_bucket json_array_elements_text
    jsonb_array_elements_text jsonb_array_length jsonb_typeof json_typeof
"""
_HARMLESS = frozenset(_COMPUTE.split())
"""Functions that the parser has no class for, and that only compute."""


def refuse_writes(statement: str, dialect: str, tables: Mapping[str, Sequence[str]], schema: str = "main") -> None:
    """Refuse anything but one reading query over some tables.

    Args:
        dialect: `sqlite` or `postgres`.
        tables: their names, with those of their columns.
        schema: the name that may qualify a table.

    Raises:
        StatementError: what it is instead, and what to write.
        MissingExtra: there is no parser.

    >>> refuse_writes("WITH gone AS (DELETE FROM t RETURNING *) SELECT * FROM gone", "postgres", {"t": ("a",)})
    Traceback (most recent call last):
    spolia.errors.StatementError: The statement has Delete in it, and may only read. Write one SELECT.
    """
    if len(statement) > LONGEST:
        raise StatementError(f"The statement has {len(statement)} characters, more than {LONGEST}. Write one SELECT.")
    query = _parse(statement, dialect)
    _refuse_other_statements(query)
    _refuse_functions(query)
    _refuse_unknown(query, tables, schema)


def refuse_no_parser() -> None:
    """Raise MissingExtra if statements cannot be parsed here, before a model is paid for one."""
    if find_spec("sqlglot") is None:
        raise MissingExtra("text-to-sql", "sqlglot", "Asking a database in SQL")


def load_parser() -> None:
    """Import the parser: a tenth of a second that no statement is charged for."""
    require(sqlglot, "Asking a database in SQL")


def _parse(statement: str, dialect: str) -> exp.Query:
    refuse_no_parser()

    logging.getLogger("sqlglot").setLevel(logging.ERROR)  # it warns of what is refused here
    try:
        statements = [tree for tree in sqlglot.parse(statement, read=dialect) if tree is not None]
    except (sqlglot.errors.SqlglotError, RecursionError, ValueError) as error:
        # sqlglot underlines the place for a terminal; a model reads the message here.
        message = " ".join(str(error).replace("\x1b[4m", "»").replace("\x1b[0m", "«").split())[:300]
        raise StatementError(
            f"The statement cannot be read: {message or type(error).__name__}. Write one SELECT."
        ) from None
    if len(statements) != 1:
        raise StatementError(f"There are {len(statements)} statements. Write one SELECT.")
    if not isinstance(statements[0], exp.Query):
        raise StatementError(f"The statement is {_kind(statements[0])}, and may only read. Write one SELECT.")
    return statements[0]


def _refuse_other_statements(query: exp.Query) -> None:
    """Refuse anything within a query that writes, locks or runs something."""
    writes: tuple[Any, ...] = (
        exp.DML, exp.DDL, exp.Command, exp.Into, exp.Lock, exp.Drop, exp.Alter, exp.Pragma, exp.Attach, exp.Detach,
        exp.Set, exp.Transaction, exp.Commit, exp.Rollback, exp.TruncateTable, exp.Placeholder, exp.Parameter,
    )  # fmt: skip
    for node in query.walk():
        subquery = node.this if isinstance(node, exp.CTE) else None
        if isinstance(node, writes) or not (subquery is None or isinstance(subquery, (exp.Query, exp.Values))):
            raise StatementError(
                f"The statement has {_kind(subquery or node)} in it, and may only read. Write one SELECT."
            )


def _refuse_functions(query: exp.Query) -> None:
    reaching = (exp.ReadCSV, exp.ReadParquet, exp.ToFile, exp.NextValueFor)
    for node in query.find_all(exp.Anonymous, exp.AnonymousAggFunc, *reaching):
        name = _kind(node) if isinstance(node, reaching) else str(node.this)
        if name.lower() not in _HARMLESS:
            raise StatementError(f"The function {name[:60]} may not be used. Write the query without it.")


def _refuse_unknown(query: exp.Query, tables: Mapping[str, Sequence[str]], schema: str) -> None:
    """Refuse tables and columns that were not shown; a quoted column that is none would be a text to SQLite."""
    aliases = {alias.alias.lower() for alias in query.find_all(exp.CTE, exp.Subquery, exp.Alias, exp.Table)}
    aliases |= {str(name.name).lower() for alias in query.find_all(exp.TableAlias) for name in alias.columns}
    table_names = {table.lower() for table in tables}
    for table in query.find_all(exp.Table):
        is_computed = isinstance(table.this, exp.Func) and not isinstance(table.this, exp.Anonymous)
        is_foreign = table.catalog or table.db.lower() not in ("", schema.lower())
        if not is_computed and (is_foreign or table.name.lower() not in table_names) and not _is_expression(table):
            raise StatementError(f"There is no table {_format_table(table)!r:.60}. There are: {format_columns(tables)}")
    columns = {column.lower() for names in tables.values() for column in names} | aliases | table_names
    for column in query.find_all(exp.Column):
        if not isinstance(column.this, exp.Star) and column.name.lower() not in columns:
            raise StatementError(f"There is no column {column.name!r:.60}. There are: {format_columns(tables)}")


def _is_expression(table: exp.Table) -> bool:
    """Return whether a table is a common table expression of an enclosing query; one elsewhere does not hide a real
    table."""
    enclosing = table.parent
    while enclosing is not None and not table.db:
        with_clauses = [part for part in enclosing.args.values() if isinstance(part, exp.With)]
        if any(cte.alias.lower() == table.name.lower() for part in with_clauses for cte in part.expressions):
            return True
        enclosing = enclosing.parent
    return False


def _format_table(table: exp.Table) -> str:
    return ".".join(part.name for part in table.parts) or table.sql()


def _kind(node: object) -> str:
    return type(node).__name__
