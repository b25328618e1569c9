"""What is measured: flows from a query to a ranking or an answer, each with a name."""

import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Any, TypeAlias

from spolia import __version__
from spolia.core.fingerprint.digest import code_digest
from spolia.core.function import Function
from spolia.core.operator import Operator
from spolia.core.operator import walk_values as among
from spolia.core.type_compatibility import fits, name_of
from spolia.errors import DataError, WiringError
from spolia.evaluation.measures.measure import Result, SetMeasure
from spolia.retrieval.graph.node_graph import NodeGraph
from spolia.run import Run
from spolia.stores.corpus import NodeGroup
from spolia.types import Addressed, Answer, Item, Query, Ranking, digest_of

Flow: TypeAlias = Operator[Query, Result]


def check_items(items: Iterable[Item]) -> tuple[Item, ...]:
    """Return the questions to ask; `DataError` if one is not an Item, such as a plain text."""
    listed = tuple(items)
    if strange := [item for item in listed if not isinstance(item, Item)]:
        raise DataError(
            f"{strange[0]!r:.80} is not an Item. Write Item('q1', 'Who?', gold=(('a.md',),)), or "
            "DataSet(FOLDER).items()."
        )
    return listed


def name_flows(flows: Flow | Sequence[Flow] | Mapping[str, Flow]) -> tuple[tuple[str, Flow], ...]:
    """Return flows with their names; `WiringError` if there is no flow, or if two have one name."""
    if isinstance(flows, Mapping):
        by_name = dict(flows)
    else:
        listed: Any = (flows,) if isinstance(flows, Operator | str) else tuple(flows)
        by_name = {repr(flow): flow for flow in listed}
        if len(by_name) < len(listed):
            raise WiringError(
                "Two of the flows are the same. Leave one out, or give them by name: {'one': ..., 'two': ...}."
            )
    if strange := [flow for flow in by_name.values() if not isinstance(flow, Operator)]:
        raise WiringError(f"{strange[0]!r} is not a flow. Give operators, such as BM25(group) >> Reader(llm).")
    if not by_name:
        raise WiringError("There is no flow to ask. Give one at least.")
    return tuple(by_name.items())


def group_equal_flows(flows: Iterable[tuple[str, Flow]]) -> list[tuple[tuple[str, ...], Flow]]:
    """Return each flow once, with the names of all flows that equal it."""
    rows: list[tuple[tuple[str, ...], Flow]] = []
    for name, flow in flows:
        row = next((row for row, (_, known_flow) in enumerate(rows) if known_flow == flow), len(rows))
        names, flow = rows[row] if row < len(rows) else ((), flow)
        rows[row : row + 1] = [((*names, name), flow)]
    return rows


def row_name(names: Iterable[str]) -> str:
    """Return the name of a row of equal flows: `default = hybrid`."""
    return " = ".join(names)


def refuse_other_flows(flow: Operator[Any, Any]) -> None:
    """Raise WiringError for a flow that does not lead from a query to a ranking or an answer."""
    output_type = flow.gives(Query)
    if not fits(Ranking | Answer, output_type, {}):
        raise WiringError(
            f"The flow gives {name_of(output_type)}; a Ranking or an Answer can be measured. "
            "Add the step that makes one, for example a fusion after Branch(...)."
        )


def open_stores(flows: Iterable[Flow]) -> list[float]:
    """Open the stores of flows and build missing groups; return how many seconds that took for each flow."""
    opened_resources, durations = set[NodeGroup | NodeGraph](), []
    for flow in flows:
        started = time.perf_counter()
        for resource in (resource for resource in flow.resources if isinstance(resource, NodeGroup | NodeGraph)):
            group = resource if isinstance(resource, NodeGroup) else resource.group
            if resource not in opened_resources and group.corpus.exists():
                resource.snapshot()
            opened_resources.add(resource)
        durations.append(time.perf_counter() - started)
    return durations


def searched_groups(flow: Flow) -> list[NodeGroup]:
    """Return the groups that a flow searches, including those of its graphs."""
    groups = (resource.group if isinstance(resource, NodeGraph) else resource for resource in flow.resources)
    return list(dict.fromkeys(group for group in groups if isinstance(group, NodeGroup)))


def portable_notation(flow: Flow) -> str:
    """Return the notation of a flow without the paths of its stores."""
    text = repr(flow)
    for group in searched_groups(flow):
        text = text.replace(group.corpus.path, "")
    return text


CONTENT = "content"
Fingerprints: TypeAlias = dict[object, str | None]


def identity(value: Operator[Any, Any] | SetMeasure, run: Run, fingerprints: Fingerprints) -> dict[str, Any]:
    """Return the inputs of a flow's answers or a measure's scores as plain data: its notation, code, stores, models and
    principals, and the version of Spolia."""
    asked_for = {"principals": sorted(run.principals), "filter": repr(run.filter or "")}
    depends = {
        CONTENT: _hash(value),
        "code": code_hashes(value, fingerprints),
        "reads": content_fingerprints(value, fingerprints),
    }
    return {"written": repr(value), **depends, "asked for": asked_for, "Spolia": __version__}


def describe_changes(previous: Mapping[str, Any], now: Mapping[str, Any], place: str = "") -> list[str]:
    """Describe what differs between two nested mappings, in words.

    >>> now = {"flows": {"a": {"written": "BM25(top_k=5)"}, "b": {}}}
    >>> describe_changes({"flows": {"a": {"written": "BM25()"}}}, now)
    ['flows, a, written: was BM25(), is BM25(top_k=5)', 'flows, b: is new']
    >>> then, now = ({f"ChatModel('m', 'http://{host}/v1')": ""} for host in "ab")
    >>> describe_changes({"reads": then}, {"reads": now})
    ["reads: ChatModel: 'http://a/v1' then, 'http://b/v1' now"]
    """
    texts: list[str] = []
    gone, new = (
        [name for name in side if name not in opposite] for side, opposite in ((previous, now), (now, previous))
    )
    renamed = [(old, name) for old in gone for name in new if "(" in old and old.split("(")[0] == name.split("(")[0]]
    if len(gone) == len(renamed) == len(new):  # addresses, of which a field has changed
        texts += [f"{place}: {describe_difference(*pair)}" for pair in renamed]
        previous, now = ({name: side[name] for name in previous if name in now} for side in (previous, now))
    for name in dict.fromkeys((*previous, *now)):
        label = f"{place}, {_shorten(name)}" if place else str(name)
        was, is_ = previous.get(name), now.get(name)
        if name not in previous or name not in now:
            texts.append(f"{label}: {'is new' if name not in previous else 'is gone'}")
        elif isinstance(was, Mapping) and isinstance(is_, Mapping):
            texts += describe_changes(was, is_, label)
        elif was != is_:
            is_long = any(isinstance(value, str) and len(value) >= 200 for value in (was, is_))
            differ = describe_difference(str(was), str(is_)) if is_long else f"was {was}, is {is_}"
            texts.append(f"{label}: {differ}")
    content_prefix = f"{place}, {CONTENT}: "  # a hash of all of it, which says less than what stands beside it
    return [text for text in texts if not text.startswith(content_prefix)] or texts


SHOWN_CHARACTERS = 160
"""Characters of each that are shown."""
_WORDS = re.compile(r"\w+|\W")
_OF_FIELD = re.compile(r"\w+|[='\":/.]")
_QUOTES = re.compile("['\"]")


def describe_difference(previous: str, now: str) -> str:
    """Describe what stands between the common start and the common end of two texts, and in which operator.

    >>> describe_difference("BM25(group=g, top_k=10, filter=None)", "BM25(group=g, top_k=3, filter=None)")
    'BM25: top_k=10 then, top_k=3 now'
    >>> describe_difference("BM25(top_k=10)", "BM25(top_k=10) >> Reorder()")
    'nothing then, >> Reorder() now'
    """
    then, is_ = _WORDS.findall(previous), _WORDS.findall(now)
    start = _count_common_start(then, is_)
    end = _count_common_start(then[start:][::-1], is_[start:][::-1])
    while start and _OF_FIELD.fullmatch(then[start - 1]):  # its name belongs to its value
        start -= 1
    while end and _QUOTES.subn("", "".join(then[start : len(then) - end]))[1] % 2:  # as does the rest of a text
        end -= 1
    old, new = ("".join(words[start : len(words) - end]).strip() for words in (then, is_))
    prefix = _open_operator("".join(then[:start]))
    return f"{prefix}{_shorten(old)} then, {_shorten(new)} now"


def _count_common_start(first: Sequence[str], second: Sequence[str]) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(first, second, strict=False)))


def _open_operator(head: str) -> str:
    """Return the operator whose bracket is open at the end of a text."""
    depth = 0
    for index in range(len(head) - 1, -1, -1):
        depth += {")": 1, "(": -1}.get(head[index], 0)
        if depth < 0:
            name = re.search(r"\w+$", head[:index])
            return f"{name[0]}: " if name else ""
    return ""


def _shorten(text: str) -> str:
    if not text:
        return "nothing"
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}…"


def _hash(value: object) -> str:
    try:
        return digest_of(value).hex()
    except TypeError:  # a part without a content hash, such as an embedder of the caller's own
        return repr(value)


def code_hashes(value: Any, fingerprints: Fingerprints | None = None) -> dict[str, str]:
    """Hash the code of classes and plain functions inside a value; of a class of the user, also of its Spolia bases."""
    parts = list(walk_parts(value))
    functions = [part for part in parts if isinstance(part, Function)]
    kinds = set(map(type, parts)) - set(map(type, functions))
    classes = kinds.union(*(filter(_is_spolia, kind.__mro__) for kind in kinds if not _is_spolia(kind)))
    fingerprints = {} if fingerprints is None else fingerprints
    fingerprints |= {cls: code_digest(cls).hex()[:16] for cls in classes if cls not in fingerprints}
    hashes = {cls.__qualname__: str(fingerprints[cls]) for cls in sorted(classes, key=lambda cls: cls.__qualname__)}
    return hashes | {f"{function.name}()": function.digest.hex() for function in functions}


def _is_spolia(cls: type) -> bool:
    return cls.__module__.partition(".")[0] == "spolia"


def content_fingerprints(value: Any, fingerprints: Fingerprints | None = None) -> dict[str, str | None]:
    """Return fingerprints of the stores, models and prompt files inside a value, computed now unless already known."""
    fingerprints = {} if fingerprints is None else fingerprints
    if isinstance(value, Operator):
        resources: Iterable[Addressed] = value.resources
    else:
        resources = (resource for resource in walk_parts(value) if isinstance(resource, Addressed))
    by_address = {repr(resource): resource for resource in resources}
    fingerprints |= {name: resource.fingerprint() for name, resource in by_address.items() if name not in fingerprints}
    return {name: fingerprints[name] for name in by_address}


def walk_parts(value: object) -> Iterator[Any]:
    """Yield a value and all values, operators, stores and models among its fields, also what a measure depends on."""
    for member in among(value):
        yield member
        for part in member.dependencies if isinstance(member, SetMeasure) else ():
            yield from walk_parts(part)
