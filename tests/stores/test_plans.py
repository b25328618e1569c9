"""What is done for each document takes as long in a large store as in a small one."""

from __future__ import annotations

import re
import sqlite3

from spolia.stores.backends import sql
from tests.cases import check_each

FOR_EACH = (
    *("LIVE_DOCUMENT", "IS_REFERENCED", "LIVE_SOURCE", "LIVE_SOURCES_OF", "LIVE_NODES_OF", "SOURCES_OF_URIS"),
    *("SET_SOURCE", "UNSAY_SOURCE", "END_SOURCE", "END_OF_DOCUMENT", "SET_ASIDE", "DROP_ASIDE", "ROW_OF_DOCUMENT"),
    *("NODES_OF_KEYS", "KEYS_OF_IDS", "CHILDREN", "NUMBERED", "OVERLAPPING", "DOCUMENT", "NODE_KEY"),
    *("VECTOR_ROWS", "HAS_VECTOR", "DROP_VECTORS", "DROP_SEGMENT", "DROP_EMPTY_SEGMENT"),
)


@check_each("name", FOR_EACH)
def test_no_table_is_read_through(name: str) -> None:
    connection = sqlite3.connect(":memory:")
    for statement in sql.SCHEMA:
        connection.execute(statement)
    statements = getattr(sql, name)
    for statement in (statements,) if isinstance(statements, str) else statements:
        parameters = dict.fromkeys(re.findall(r":([a-z_]+)", statement), 1) or (1,) * statement.count("?")
        plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}", parameters)]
        assert [step for step in plan if step.startswith("SCAN") and "wanted" not in step] == []
        assert not any("embedder=?" in step and "=? AND " not in step for step in plan), "all vectors of an embedder"
    connection.close()
