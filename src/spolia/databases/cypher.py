"""Cypher over a graph in a file, by kglite, in a worker process that can open no file.

kglite reads any file by `LOAD CSV`, so its process closes that door once the graph is loaded (`RLIMIT_NOFILE` 0). Its
dialect differs from openCypher in places. `checked` refuses those: a refused statement is better than wrong rows.

- kglite gives nodes properties that they lack (`id`, `title`, `type`, `label`). So the keys of the graph are stored
  with a prefix, and those of a statement are rewritten.
- `checked` refuses clauses and functions that openCypher lacks, dynamic keys (`n[x]`, `keys(n)`), regular expressions
  and a relationship in two patterns: with a condition on its end kglite finds nothing.
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


def tokens_of(statement: str) -> list[CypherToken]:
    """The tokens of a statement, without space, comments, and the semicolon at its end."""
    found = (CypherToken(str(match.lastgroup), match[0]) for match in _TOKEN.finditer(statement))
    tokens = [token for token in found if token.kind != "space"]
    return tokens[:-1] if tokens and tokens[-1].text == ";" else tokens


def checked(statement: str, kinds: Mapping[str, type]) -> str:
    """The statement as kglite runs it.

    Args:
        kinds: of properties by their keys: `bool`, `float` for numbers, `object` for others.

    Raises:
        StatementError: it is none that only reads, or one that kglite may answer wrongly.
    """
    tokens = tokens_of(statement) if len(statement) <= LONGEST else []
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
    written, brackets = list[str](), list[str]()
    for at, token in enumerate(tokens):
        before, after = tokens[at - 1] if at else _END, tokens[at + 1] if at + 1 < len(tokens) else _END
        if token.text in ("(", "[", "{"):
            brackets.append(token.text)
        elif token.text in (")", "]", "}") and brackets:
            brackets.pop()
        is_property = token.is_name and before.text == "." and at > 1
        is_key = token.is_name and after.text == ":" and before.text in ("{", ",") and brackets[-1:] == ["{"]
        if is_property or is_key:
            written.append(f"`{KEY}{token.text.strip('`')}`")
            if is_property:
                _refuse_kind(token.text.strip("`"), tokens[at - 3] if at > 2 else _END, after, kinds)
            continue
        _refuse(token, before, after)
        written.append(token.text)
    return " ".join(written)


def _refuse(token: CypherToken, before: CypherToken, after: CypherToken) -> None:
    if before.text != ":" and token.word in _REFUSED:
        raise StatementError(f"{token.word} is not supported. Write a statement that only reads: MATCH … RETURN.")
    if token.text in (";", "$", "=~"):
        raise StatementError(
            f"{token.text!r} is not supported. Write one statement, with values instead of parameters."
        )
    if token.text == "." and not (before.is_name or before.text in (")", "]", "}")):
        raise StatementError("A map of chosen keys, `n {.key}`, is not supported. Write {key: n.key}.")
    if token.kind == "text" and (before.text in _ARITHMETIC or after.text in _ARITHMETIC):
        raise StatementError(f"{token.text:.40} is not a number. Write a number.")
    is_access = token.text == "[" and ((before.is_name and before.word not in _WORDS) or before.text in (")", "]"))
    if is_access and after.kind != "number" and after.text not in ("-", ".."):
        raise StatementError("A key or place that is computed, n[x], is not supported. Write n.key, or list[0].")
    is_call = token.is_name and after.text == "(" and token.word not in _WORDS
    if is_call and token.text.lower() not in FUNCTIONS:
        raise StatementError(f"No function {token.text}. Write one of: {', '.join(sorted(FUNCTIONS))}.")


def _refuse_kind(key: str, before: CypherToken, after: CypherToken, kinds: Mapping[str, type]) -> None:
    """Refuse a property as a condition or a number that is none: kglite takes it for true, or for null."""
    is_alone = after.word in _LOGIC | _CLAUSES or after is _END or after.text == ")"
    if before.word in _LOGIC and is_alone and kinds.get(key) is not bool:
        raise StatementError(f"The property {key} is not a condition. Compare it, as in n.{key} = 1.")
    if (before.text in _ARITHMETIC or after.text in _ARITHMETIC) and kinds.get(key, float) is not float:
        raise StatementError(f"The property {key} is not a number. Compare it, or write toFloat(n.{key}).")


class LoadedGraph(NamedTuple):
    """A graph of kglite, and what `checked` and `shown` need to know of it."""

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
    _loaded[path, mtime_ns, size] = loaded(json.loads(Path(path).read_text("utf-8")))
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))


def loaded(plain: Mapping[str, Any]) -> LoadedGraph:
    """The graph of plain data, as `PropertyGraph.from_plain` takes them."""
    require(kglite, "Cypher over a file")
    nodes, links = defaultdict[str, list[Any]](list), defaultdict[tuple[str, str, str], list[Any]](list)
    labels = {str(node["id"]): [str(label) for label in node.get("labels", ())] for node in plain["nodes"]}
    first = {id: held[0] if held else UNLABELLED for id, held in labels.items()}
    values = defaultdict[str, list[Any]](list)
    for node in plain["nodes"]:
        id, held = str(node["id"]), _stored(node.get("properties", {}))
        nodes[first[id]].append({ID: id, **held})
        for key, value in held.items():
            values[key].append(value)
    for one in plain["relationships"]:
        start, end, held = str(one["from"]), str(one["to"]), _stored(one.get("properties", {}))
        links[str(one["type"]), first[start], first[end]].append({FROM: start, TO: end, **held})
        for key, value in held.items():
            values[key].append(value)
    spec = {
        "nodes": [{"type": kind, "id_field": ID, "title_field": ID, "records": held} for kind, held in nodes.items()],
        "connections": [
            {
                "type": kind, "source_type": start, "source_id_field": FROM, "target_type": end, "target_id_field": TO,
                "records": held,
            }
            for (kind, start, end), held in links.items()
        ],
    }  # fmt: skip
    kglite.set_query_warning_policy("silent")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        graph = kglite.from_records(spec)
        for id, several in labels.items():
            for label in several[1:]:
                graph.add_label(first[id], [id], label)
    graph.read_only(True)
    _refuse_changed(graph, nodes, links)
    kinds = {key.removeprefix(KEY): _kind(held) for key, held in values.items()}
    names = {str(node["id"]): _name(node) for node in plain["nodes"]}
    return LoadedGraph(graph, names, kinds, UNLABELLED in nodes)


def _kind(values: Sequence[Any]) -> type:
    found = [value for value in values if value is not None]
    if all(isinstance(value, bool) for value in found):
        return bool
    is_number = all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in found)
    return float if is_number else object


def _name(node: Mapping[str, Any]) -> str:
    held = node.get("properties", {})
    return str(held.get("name") or held.get("title") or node["id"])


def _stored(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Properties under their keys with a prefix; maps, and lists of other things than scalars, as JSON."""
    return {f"{KEY}{key}": value if _is_simple(value) else json.dumps(value) for key, value in properties.items()}


def _is_simple(value: Any) -> bool:
    kinds = (str, int, float, bool, type(None))
    return isinstance(value, kinds) or (isinstance(value, list) and all(isinstance(one, kinds) for one in value))


def _refuse_changed(graph: Any, nodes: Mapping[str, Any], links: Mapping[Any, Any]) -> None:
    """Refuse a graph that kglite holds in another form than it was given."""

    def plain(held: Mapping[str, Any]) -> str:
        values = {key: value for key, value in held.items() if key.startswith(KEY) and value is not None}
        return json.dumps(values, sort_keys=True)

    given = Counter[tuple[str, ...]]((row[ID], plain(row)) for rows in nodes.values() for row in rows)
    held = Counter[tuple[str, ...]](
        (row["i"], plain(row["n"]["properties"])) for row in _run(graph, "MATCH (n) RETURN id(n) AS i, n")
    )
    given += Counter((kind, r[FROM], r[TO], plain(r)) for (kind, _, _), rows in links.items() for r in rows)
    held += Counter(
        (row["k"], row["i"], row["j"], plain(row["r"]["properties"]))
        for row in _run(graph, "MATCH (a)-[r]->(b) RETURN id(a) AS i, id(b) AS j, type(r) AS k, r")
    )
    if given != held:
        example = next(iter(given - held), ("a relationship",))
        raise StoreError(
            f"kglite cannot hold {example[0]!r:.80} as it is in the file: a property has values of several types. Give "
            "each property values of one type."
        )


def _run(graph: Any, statement: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = graph.cypher(statement, hide_structural_keys=True).to_list()
    return rows


def ask(path: str, mtime_ns: int, size: int, statement: str, rows: int, characters: int) -> list[Any]:
    """The rows of a statement over a graph that was loaded, as a worker sends them."""
    return answered(statement, _loaded[path, mtime_ns, size], QueryLimits(rows, characters)).plain


def answered(statement: str, graph: LoadedGraph, limits: QueryLimits) -> QueryRows:
    """The rows of a statement.

    Raises:
        StatementError: a check rejects the statement, or it fails.
    """
    query = checked(statement, graph.kinds)
    if graph.has_unlabelled and any(token.text.lower() == "labels" for token in tokens_of(statement)):
        raise StatementError("labels() is not supported over a graph with nodes that have no label.")
    try:
        result = graph.graph.cypher(query, hide_structural_keys=True, disabled_passes=_disabled_passes())
        columns, found = list(result.columns), result.to_list()
    except Exception as error:  # kglite's errors have many classes
        raise StatementError(f"{type(error).__name__}: {_readable(str(error))}") from error
    show = partial(shown, graph.names)
    values: Iterator[Sequence[Any]] = (tuple(map(show, (row[column] for column in columns))) for row in found)
    return QueryRows.read(list(map(_readable, columns)), values, statement, limits)


@cache
def _disabled_passes() -> list[str]:
    return [name for name in kglite.cypher_pass_names() if name not in _PASSES]


def _readable(text: str) -> str:
    """Words of kglite about a rewritten statement, as they are about the one that was written."""
    return re.sub(rf"\s*\.\s*`?{KEY}(\w+)`?", r".\1", text).replace(f"`{KEY}", "`").replace(KEY, "")


def shown(names: Mapping[str, str], value: Any) -> Any:
    """A value as a row has it: nodes by their names, relationships by their types, lists as texts."""
    if isinstance(value, list):
        return ", ".join(str(shown(names, one)) for one in value)
    if not isinstance(value, dict):
        return value
    if "nodes" in value:
        return shown(names, value["nodes"])
    if "labels" in value:
        id = value["properties"][ID]
        return names.get(id, id)
    if "start" in value:
        return value["type"]
    return json.dumps({key.removeprefix(KEY): shown(names, one) for key, one in value.items()}, ensure_ascii=False)
