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
from spolia.core.operator import inside as among
from spolia.core.type_compatibility import fits, name_of
from spolia.errors import DataError, WiringError
from spolia.evaluation.measures.measure import Result, SetMeasure
from spolia.retrieval.graph.node_graph import NodeGraph
from spolia.run import Run
from spolia.stores.corpus import NodeGroup
from spolia.types import Addressed, Answer, Item, Query, Ranking, digest_of

Flow: TypeAlias = Operator[Query, Result]


def questions(items: Iterable[Item]) -> tuple[Item, ...]:
    """The questions to ask; `DataError` if one has no id and no gold, such as a plain text."""
    listed = tuple(items)
    if strange := [item for item in listed if not isinstance(item, Item)]:
        raise DataError(
            f"{strange[0]!r:.80} is not an Item. Write Item('q1', 'Who?', gold=(('a.md',),)), or "
            "DataSet(FOLDER).items()."
        )
    return listed


def named(flows: Flow | Sequence[Flow] | Mapping[str, Flow]) -> tuple[tuple[str, Flow], ...]:
    """Flows with their names; `WiringError` if there is no flow, or if two have one name."""
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


def named_together(flows: Iterable[tuple[str, Flow]]) -> list[tuple[tuple[str, ...], Flow]]:
    """Return each flow once, with the names of all flows that equal it."""
    rows: list[tuple[tuple[str, ...], Flow]] = []
    for name, flow in flows:
        at = next((at for at, (_, other) in enumerate(rows) if other == flow), len(rows))
        names, flow = rows[at] if at < len(rows) else ((), flow)
        rows[at : at + 1] = [((*names, name), flow)]
    return rows


def row_name(names: Iterable[str]) -> str:
    """Return the name of a row of equal flows: `default = hybrid`."""
    return " = ".join(names)


def refuse_other_flows(flow: Operator[Any, Any]) -> None:
    """Only what goes from a query to a ranking or an answer can be measured; else `WiringError`."""
    given = flow.gives(Query)
    if not fits(Ranking | Answer, given, {}):
        raise WiringError(
            f"The flow gives {name_of(given)}; a Ranking or an Answer can be measured. "
            "Add the step that makes one, for example a fusion after Branch(...)."
        )


def opened(flows: Iterable[Flow]) -> list[float]:
    """Open the stores of flows, and build groups that are not there yet; how many seconds that took for each."""
    known, taken = set[NodeGroup | NodeGraph](), []
    for flow in flows:
        started = time.perf_counter()
        for one in (one for one in flow.resources if isinstance(one, NodeGroup | NodeGraph)):
            group = one if isinstance(one, NodeGroup) else one.group
            if one not in known and group.corpus.exists():
                one.snapshot()
            known.add(one)
        taken.append(time.perf_counter() - started)
    return taken


def groups_of(flow: Flow) -> list[NodeGroup]:
    """The groups that a flow searches, those of its graphs among them."""
    found = (one.group if isinstance(one, NodeGraph) else one for one in flow.resources)
    return list(dict.fromkeys(one for one in found if isinstance(one, NodeGroup)))


def written(flow: Flow) -> str:
    """How a flow is written, wherever its stores are."""
    found = repr(flow)
    for group in groups_of(flow):
        found = found.replace(group.corpus.path, "")
    return found


CONTENT = "content"
Known: TypeAlias = dict[object, str | None]


def identity(value: Operator[Any, Any] | SetMeasure, run: Run, known: Known) -> dict[str, Any]:
    """The inputs of a flow's answers or a measure's scores, as plain data: how it is written, its code,
    stores and models, who asks, and the version of Spolia."""
    asked_for = {"principals": sorted(run.principals), "filter": repr(run.filter or "")}
    depends = {CONTENT: _hash(value), "code": code_of(value, known), "reads": reads(value, known)}
    return {"written": repr(value), **depends, "asked for": asked_for, "Spolia": __version__}


def changes(before: Mapping[str, Any], now: Mapping[str, Any], place: str = "") -> list[str]:
    """What differs, in words.

    >>> changes({"flows": {"a": {"written": "BM25()"}}}, {"flows": {"a": {"written": "BM25(top_k=5)"}, "b": {}}})
    ['flows, a, written: was BM25(), is BM25(top_k=5)', 'flows, b: is new']
    >>> then, now = ({f"ChatModel('m', 'http://{host}/v1')": ""} for host in "ab")
    >>> changes({"reads": then}, {"reads": now})
    ["reads: ChatModel: 'http://a/v1' then, 'http://b/v1' now"]
    """
    found: list[str] = []
    gone, new = ([name for name in one if name not in other] for one, other in ((before, now), (now, before)))
    moved = [(old, name) for old in gone for name in new if "(" in old and old.split("(")[0] == name.split("(")[0]]
    if len(gone) == len(moved) == len(new):  # addresses, of which a field has changed
        found += [f"{place}: {part_that_differs(*one)}" for one in moved]
        before, now = ({name: one[name] for name in before if name in now} for one in (before, now))
    for name in dict.fromkeys((*before, *now)):
        at = f"{place}, {_short(name)}" if place else str(name)
        was, is_ = before.get(name), now.get(name)
        if name not in before or name not in now:
            found.append(f"{at}: {'is new' if name not in before else 'is gone'}")
        elif isinstance(was, Mapping) and isinstance(is_, Mapping):
            found += changes(was, is_, at)
        elif was != is_:
            is_long = any(isinstance(one, str) and len(one) >= 200 for one in (was, is_))
            differ = part_that_differs(str(was), str(is_)) if is_long else f"was {was}, is {is_}"
            found.append(f"{at}: {differ}")
    whole = f"{place}, {CONTENT}: "  # a hash of all of it, which says less than what stands beside it
    return [one for one in found if not one.startswith(whole)] or found


LONGEST = 160
"""Characters of each that are shown."""
_WORDS = re.compile(r"\w+|\W")
_OF_FIELD = re.compile(r"\w+|[='\":/.]")
_QUOTES = re.compile("['\"]")


def part_that_differs(before: str, now: str) -> str:
    """What stands between that with which both begin and that with which both end, and in which operator.

    >>> part_that_differs("BM25(group=g, top_k=10, filter=None)", "BM25(group=g, top_k=3, filter=None)")
    'BM25: top_k=10 then, top_k=3 now'
    >>> part_that_differs("BM25(top_k=10)", "BM25(top_k=10) >> Reorder()")
    'nothing then, >> Reorder() now'
    """
    then, is_ = _WORDS.findall(before), _WORDS.findall(now)
    start = _alike(then, is_)
    end = _alike(then[start:][::-1], is_[start:][::-1])
    while start and _OF_FIELD.fullmatch(then[start - 1]):  # its name belongs to its value
        start -= 1
    while end and _QUOTES.subn("", "".join(then[start : len(then) - end]))[1] % 2:  # as does the rest of a text
        end -= 1
    old, new = ("".join(one[start : len(one) - end]).strip() for one in (then, is_))
    where = _operator("".join(then[:start]))
    return f"{where}{_short(old)} then, {_short(new)} now"


def _alike(one: Sequence[str], other: Sequence[str]) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def _operator(head: str) -> str:
    """The operator whose bracket is open at the end of a text."""
    depth = 0
    for at in range(len(head) - 1, -1, -1):
        depth += {")": 1, "(": -1}.get(head[at], 0)
        if depth < 0:
            name = re.search(r"\w+$", head[:at])
            return f"{name[0]}: " if name else ""
    return ""


def _short(text: str) -> str:
    if not text:
        return "nothing"
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def _hash(value: object) -> str:
    try:
        return digest_of(value).hex()
    except TypeError:  # a part without a content hash, such as an embedder of the caller's own
        return repr(value)


def code_of(value: Any, known: Known | None = None) -> dict[str, str]:
    """Hashes of the code of classes and plain functions inside a value; of a class of the user, also of its Spolia
    bases."""
    parts = list(inside(value))
    functions = [one for one in parts if isinstance(one, Function)]
    kinds = set(map(type, parts)) - set(map(type, functions))
    classes = kinds.union(*(filter(_is_spolia, kind.__mro__) for kind in kinds if not _is_spolia(kind)))
    known = {} if known is None else known
    known |= {cls: code_digest(cls).hex()[:16] for cls in classes if cls not in known}
    found = {cls.__qualname__: str(known[cls]) for cls in sorted(classes, key=lambda cls: cls.__qualname__)}
    return found | {f"{one.name}()": one.digest.hex() for one in functions}


def _is_spolia(cls: type) -> bool:
    return cls.__module__.partition(".")[0] == "spolia"


def reads(value: Any, known: Known | None = None) -> dict[str, str | None]:
    """The contents of stores, models and prompt files now, except known ones."""
    known = {} if known is None else known
    if isinstance(value, Operator):
        found: Iterable[Addressed] = value.resources
    else:
        found = (one for one in inside(value) if isinstance(one, Addressed))
    named = {repr(one): one for one in found}
    known |= {name: one.fingerprint() for name, one in named.items() if name not in known}
    return {name: known[name] for name in named}


def inside(value: object) -> Iterator[Any]:
    """A value and all values, operators, stores and models among its fields, or a measure is made of."""
    for one in among(value):
        yield one
        for part in one.made if isinstance(one, SetMeasure) else ():
            yield from inside(part)
