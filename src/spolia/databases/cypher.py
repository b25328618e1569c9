"""Cypher over a graph in a file, by kglite, in a worker process that can open no file.

kglite reads any file by `LOAD CSV`, so its process closes that door once the graph is loaded (`RLIMIT_NOFILE` 0). Its
dialect differs from openCypher in places. `rewrite_statement` refuses those: a refused statement is better than
wrong rows.

- kglite gives nodes properties that they lack (`id`, `title`, `type`, `label`). So the keys of the graph are stored
  with a prefix, and those of a statement are rewritten.
- `rewrite_statement` refuses clauses and functions that openCypher lacks, dynamic keys (`n[x]`, `keys(n)`), regular
  expressions and a relationship in two patterns: with a condition on its end kglite finds nothing.
- Of its optimizer only passes run that choose where a search begins (`_PASSES`): others lose rows.
- A graph is compared with what kglite holds of it: it makes one type of mixed values.
"""

import json
import re
import sys
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

from spolia.databases.database import QueryLimits, QueryRows
from spolia.deferred import kglite
from spolia.errors import StatementError, StoreError, require

if sys.platform != "win32":
    import resource

KEY, ID, FROM, TO, UNLABELLED = "k_", "node id", "from", "to", "no label"
LONGEST = 10_000
"""Characters of a statement."""
_TOKEN = re.compile(
    r"""(?P<space>\s+|//[^\n]*|/\*.*?\*/)|(?P<text>'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*")|(?P<quoted>`[^`]*`)
    |(?P<number>(?:\d+(?:\.(?=\d)\d+)?|\.\d+)(?:[eE][+-]?\d+)?)|(?P<name>[^\W\d]\w*)|(?P<mark><=|>=|<>|=~|\.\.|.)""",
    re.VERBOSE | re.DOTALL,
)
_FIRST = frozenset(["MATCH", "OPTIONAL", "UNWIND", "WITH", "RETURN"])
_CLAUSES = _FIRST | frozenset(["WHERE", "ORDER", "SKIP", "LIMIT", "UNION"])
_LOGIC = frozenset(["WHERE", "AND", "OR", "XOR", "NOT"])
_WORDS = (
    _CLAUSES
    | _LOGIC
    | frozenset(
        ["IN", "DISTINCT", "BY", "WHEN", "THEN", "ELSE", "CASE", "AS", "CONTAINS", "ALL", "ANY", "NONE", "SINGLE"]
    )
)
_ARITHMETIC = frozenset("*/%^-")
_REFUSED = frozenset(
    [
        "CREATE",
        "MERGE",
        "SET",
        "DELETE",
        "DETACH",
        "NODETACH",
        "REMOVE",
        "CALL",
        "LOAD",
        "FOREACH",
        "DROP",
        "USE",
        "SHOW",
        "INSERT",
        "EXPLAIN",
        "PROFILE",
        "HAVING",
        "FILTER",
        "FINISH",
        "OFFSET",
        "INTERSECT",
        "EXCEPT",
        "FORMAT",
        "FOR",
        "LET",
        "NEXT",
        "YIELD",
    ]
)
FUNCTIONS = frozenset(
    [
        "count",
        "collect",
        "sum",
        "avg",
        "min",
        "max",
        "coalesce",
        "exists",
        "tolower",
        "toupper",
        "trim",
        "size",
        "length",
        "reverse",
        "split",
        "replace",
        "substring",
        "left",
        "right",
        "tostring",
        "tointeger",
        "tofloat",
        "abs",
        "round",
        "floor",
        "ceil",
        "sign",
        "sqrt",
        "head",
        "last",
        "tail",
        "range",
        "id",
        "labels",
        "type",
        "nodes",
        "relationships",
        "any",
        "all",
        "none",
        "single",
    ]
)


_PASSES = frozenset(
    [
        "push_where_into_match.1",
        "push_where_into_match.2",
        "optimize_pattern_start_node",
        "reorder_match_patterns",
        "reorder_predicates_by_cost",
    ]
)
"""Passes of kglite's optimizer that only choose where a search begins. Others fuse counts and limits into it, and give
0 for `MATCH (a)--(b)--(c) RETURN count(*)`."""


class CypherToken(NamedTuple):
    """A word or mark of a statement."""

    kind: str
    text: str

    @property
    def word(self) -> str:
        """A name in upper case, as keywords are compared; empty for other tokens."""
        return self.text.upper() if self.kind == "name" else ""

    @property
    def is_name(self) -> bool:
        return self.kind in ("name", "quoted")


_END = CypherToken("end", "")


def tokenize(statement: str) -> list[CypherToken]:
    """Split a statement into tokens, without space, comments, and the semicolon at its end."""
    all_tokens = (CypherToken(str(match.lastgroup), match[0]) for match in _TOKEN.finditer(statement))
    tokens = [token for token in all_tokens if token.kind != "space"]
    return tokens[:-1] if tokens and tokens[-1].text == ";" else tokens


def rewrite_statement(statement: str, kinds: Mapping[str, type]) -> str:
    """Check a statement, and rewrite it for kglite.

    Args:
        kinds: of properties by their keys: `bool`, `float` for numbers, `object` for others.

    Raises:
        StatementError: it is none that only reads, or one that kglite may answer wrongly.
    """
    tokens = tokenize(statement) if len(statement) <= LONGEST else []
    words = [token.word for token in tokens]
    if not tokens or words[0] not in _FIRST or "RETURN" not in words:
        raise StatementError("Write one statement that begins with MATCH, UNWIND, WITH or RETURN, and returns rows.")
    links = [
        name.text
        for dash, bracket, name in zip(tokens, tokens[1:], tokens[2:], strict=False)
        if (dash.text, bracket.text) == ("-", "[") and name.is_name
    ]
    if len(set(links)) < len(links):
        raise StatementError("A relationship is in two patterns. Write one pattern, or another variable.")
    rewritten, brackets = list[str](), list[str]()
    for index, token in enumerate(tokens):
        previous, following = (
            tokens[index - 1] if index else _END,
            tokens[index + 1] if index + 1 < len(tokens) else _END,
        )
        if token.text in ("(", "[", "{"):
            brackets.append(token.text)
        elif token.text in (")", "]", "}") and brackets:
            brackets.pop()
        is_property = token.is_name and previous.text == "." and index > 1
        is_key = token.is_name and following.text == ":" and previous.text in ("{", ",") and brackets[-1:] == ["{"]
        if is_property or is_key:
            rewritten.append(f"`{KEY}{token.text.strip('`')}`")
            if is_property:
                _refuse_kind(token.text.strip("`"), tokens[index - 3] if index > 2 else _END, following, kinds)
            continue
        _refuse_token(token, previous, following)
        rewritten.append(token.text)
    return " ".join(rewritten)


def _refuse_token(token: CypherToken, previous: CypherToken, following: CypherToken) -> None:
    # behind a colon it is a label or a type, which may be called so
    if previous.text != ":" and token.word in _REFUSED:
        raise StatementError(f"{token.word} is not supported. Write a statement that only reads: MATCH … RETURN.")
    if token.text in (";", "$", "=~"):
        raise StatementError(
            f"{token.text!r} is not supported. Write one statement, with values instead of parameters."
        )
    if token.text == "." and not (previous.is_name or previous.text in (")", "]", "}")):
        raise StatementError("A map of chosen keys, `n {.key}`, is not supported. Write {key: n.key}.")
    if token.kind == "text" and (previous.text in _ARITHMETIC or following.text in _ARITHMETIC):
        raise StatementError(f"{token.text:.40} is not a number. Write a number.")
    is_access = token.text == "[" and (
        (previous.is_name and previous.word not in _WORDS) or previous.text in (")", "]")
    )
    if is_access and following.kind != "number" and following.text not in ("-", ".."):
        raise StatementError("A key or place that is computed, n[x], is not supported. Write n.key, or list[0].")
    is_call = token.is_name and following.text == "(" and token.word not in _WORDS
    if is_call and token.text.lower() not in FUNCTIONS:
        raise StatementError(f"No function {token.text}. Write one of: {', '.join(sorted(FUNCTIONS))}.")


def _refuse_kind(key: str, previous: CypherToken, following: CypherToken, kinds: Mapping[str, type]) -> None:
    """Refuse a property as a condition or number that it is not: kglite takes it for true, or for null."""
    is_alone = following.word in _LOGIC | _CLAUSES or following is _END or following.text == ")"
    if previous.word in _LOGIC and is_alone and kinds.get(key) is not bool:
        raise StatementError(f"The property {key} is not a condition. Compare it, as in n.{key} = 1.")
    if (previous.text in _ARITHMETIC or following.text in _ARITHMETIC) and kinds.get(key, float) is not float:
        raise StatementError(f"The property {key} is not a number. Compare it, or write toFloat(n.{key}).")


class LoadedGraph(NamedTuple):
    """A graph of kglite, with what `rewrite_statement` and `format_value` need to know of it."""

    graph: Any
    names: Mapping[str, str]
    kinds: Mapping[str, type]
    has_unlabelled: bool


_loaded: dict[tuple[str, int, int], LoadedGraph] = {}


def load(path: str, mtime_ns: int, size: int) -> None:
    """Load a graph into this process, which serves no other one and can open no file afterwards.

    Raises:
        StoreError: kglite is missing, cannot hold the graph, or this system cannot limit a process.
    """
    if (path, mtime_ns, size) in _loaded:
        return
    if sys.platform == "win32":
        raise StoreError(
            "Cypher over a file needs the limits that Linux and macOS put on a process. Use Neo4jDatabase."
        )
    _loaded[path, mtime_ns, size] = build_graph(json.loads(Path(path).read_text("utf-8")))
    # after the graph was read: from here on `LOAD CSV` finds no descriptor
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))


def build_graph(plain: Mapping[str, Any]) -> LoadedGraph:
    """Build the graph of plain data, as `PropertyGraph.from_plain` takes them."""
    require(kglite, "Cypher over a file")
    nodes, links = defaultdict[str, list[Any]](list), defaultdict[tuple[str, str, str], list[Any]](list)
    labels = {str(node["id"]): [str(label) for label in node.get("labels", ())] for node in plain["nodes"]}
    first_labels = {id: names[0] if names else UNLABELLED for id, names in labels.items()}
    values = defaultdict[str, list[Any]](list)
    for node in plain["nodes"]:
        id, properties = str(node["id"]), _prefix_keys(node.get("properties", {}))
        nodes[first_labels[id]].append({ID: id, **properties})
        for key, value in properties.items():
            values[key].append(value)
    for relationship in plain["relationships"]:
        start, end, properties = (
            str(relationship["from"]),
            str(relationship["to"]),
            _prefix_keys(relationship.get("properties", {})),
        )
        links[str(relationship["type"]), first_labels[start], first_labels[end]].append(
            {FROM: start, TO: end, **properties}
        )
        for key, value in properties.items():
            values[key].append(value)
    spec = {
        "nodes": [
            {"type": kind, "id_field": ID, "title_field": ID, "records": records} for kind, records in nodes.items()
        ],
        "connections": [
            {
                "type": kind, "source_type": start, "source_id_field": FROM, "target_type": end, "target_id_field": TO,
                "records": records,
            }
            for (kind, start, end), records in links.items()
        ],
    }  # fmt: skip
    kglite.set_query_warning_policy("silent")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        graph = kglite.from_records(spec)
        for id, node_labels in labels.items():
            for label in node_labels[1:]:
                graph.add_label(first_labels[id], [id], label)
    graph.read_only(True)  # beside the check of each statement
    _refuse_changed(graph, nodes, links)
    kinds = {key.removeprefix(KEY): _value_kind(key_values) for key, key_values in values.items()}
    names = {str(node["id"]): _display_name(node) for node in plain["nodes"]}
    return LoadedGraph(graph, names, kinds, UNLABELLED in nodes)


def _value_kind(values: Sequence[Any]) -> type:
    present_values = [value for value in values if value is not None]
    if all(isinstance(value, bool) for value in present_values):
        return bool
    is_number = all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in present_values)
    return float if is_number else object


def _display_name(node: Mapping[str, Any]) -> str:
    properties = node.get("properties", {})
    return str(properties.get("name") or properties.get("title") or node["id"])


def _prefix_keys(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Prefix the keys of properties; write maps, and lists of other things than scalars, as JSON."""
    return {f"{KEY}{key}": value if _is_simple(value) else json.dumps(value) for key, value in properties.items()}


def _is_simple(value: Any) -> bool:
    kinds = (str, int, float, bool, type(None))
    return isinstance(value, kinds) or (isinstance(value, list) and all(isinstance(item, kinds) for item in value))


def _refuse_changed(graph: Any, nodes: Mapping[str, Any], links: Mapping[Any, Any]) -> None:
    """Refuse a graph that kglite stores in another form than the file has."""

    def plain(properties: Mapping[str, Any]) -> str:
        values = {key: value for key, value in properties.items() if key.startswith(KEY) and value is not None}
        return json.dumps(values, sort_keys=True)

    expected_counts = Counter[tuple[str, ...]]((row[ID], plain(row)) for rows in nodes.values() for row in rows)
    stored_counts = Counter[tuple[str, ...]](
        (row["i"], plain(row["n"]["properties"])) for row in _run(graph, "MATCH (n) RETURN id(n) AS i, n")
    )
    expected_counts += Counter((kind, r[FROM], r[TO], plain(r)) for (kind, _, _), rows in links.items() for r in rows)
    stored_counts += Counter(
        (row["k"], row["i"], row["j"], plain(row["r"]["properties"]))
        for row in _run(graph, "MATCH (a)-[r]->(b) RETURN id(a) AS i, id(b) AS j, type(r) AS k, r")
    )
    if expected_counts != stored_counts:
        example = next(iter(expected_counts - stored_counts), ("a relationship",))
        raise StoreError(
            f"kglite cannot hold {example[0]!r:.80} as it is in the file: a property has values of several types. Give "
            "each property values of one type."
        )


def _run(graph: Any, statement: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = graph.cypher(statement, hide_structural_keys=True).to_list()
    return rows


def ask(path: str, mtime_ns: int, size: int, statement: str, rows: int, characters: int) -> list[Any]:
    """Return the rows of a statement over a loaded graph, as a worker sends them."""
    return run_statement(statement, _loaded[path, mtime_ns, size], QueryLimits(rows, characters)).plain


def run_statement(statement: str, graph: LoadedGraph, limits: QueryLimits) -> QueryRows:
    """Run a statement, and return its rows.

    Raises:
        StatementError: a check rejects the statement, or it fails.
    """
    query = rewrite_statement(statement, graph.kinds)
    if graph.has_unlabelled and any(token.text.lower() == "labels" for token in tokenize(statement)):
        raise StatementError("labels() is not supported over a graph with nodes that have no label.")
    try:
        result = graph.graph.cypher(query, hide_structural_keys=True, disabled_passes=_disabled_passes())
        columns, result_rows = list(result.columns), result.to_list()
    except Exception as error:  # kglite's errors have many classes
        raise StatementError(f"{type(error).__name__}: {_readable(str(error))}") from error
    show = partial(format_value, graph.names)
    values: Iterator[Sequence[Any]] = (tuple(map(show, (row[column] for column in columns))) for row in result_rows)
    return QueryRows.read(list(map(_readable, columns)), values, statement, limits)


@cache
def _disabled_passes() -> list[str]:
    # A pass that a later kglite adds is off as well.
    return [name for name in kglite.cypher_pass_names() if name not in _PASSES]


def _readable(text: str) -> str:
    """Restore the user's keys in kglite's messages about a rewritten statement."""
    return re.sub(rf"\s*\.\s*`?{KEY}(\w+)`?", r".\1", text).replace(f"`{KEY}", "`").replace(KEY, "")


def format_value(names: Mapping[str, str], value: Any) -> Any:
    """Format a value for a row: nodes by their names, relationships by their types, lists as texts."""
    if isinstance(value, list):
        return ", ".join(str(format_value(names, item)) for item in value)
    if not isinstance(value, dict):
        return value
    if "nodes" in value:
        return format_value(names, value["nodes"])
    if "labels" in value:
        id = value["properties"][ID]
        return names.get(id, id)
    if "start" in value:
        return value["type"]
    return json.dumps(
        {key.removeprefix(KEY): format_value(names, item) for key, item in value.items()}, ensure_ascii=False
    )
