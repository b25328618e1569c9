"""The YAML of flow files: bounded plain data without tags, merge keys, doubled keys or cycles; YAML 1.2 scalars."""

import re
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import yaml

from spolia.core.codec import Plain
from spolia.errors import FlowFileError

Path: TypeAlias = tuple[str | int, ...]

MAX_DEPTH = 60
MAX_NODES = 20_000  # with aliases counted each time: a few lines of them can stand for billions
MAX_DIGITS = 300  # a float has at most 309 before the point, and Python refuses a number of more than 4,300

BREAKS = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\ufeff\ud800-\udfff]")
NULL = re.compile(r"^(~|null|Null|NULL|)$")
BOOL = re.compile(r"^(true|True|TRUE|false|False|FALSE)$")
INT = re.compile(r"^[-+]?[0-9]+$")
FLOAT = re.compile(r"^[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?$")
NOT_FINITE = re.compile(r"^([-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN))$")


@dataclass
class OpenCollection:
    """A list or mapping whose end has not been read."""

    content: Any
    path: Path
    line: int
    anchor: str | None
    key: str | None = None
    lines: dict[str, int] = field(default_factory=dict)
    nodes: int = 1
    height: int = 1


class YamlReader:
    """A reader that builds plain data from the events of the YAML parser, without recursion."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.stack: list[OpenCollection] = []
        self.anchors: dict[str, tuple[Plain, int, int]] = {}
        self.lines: dict[Path, int] = {}
        self.root: Plain = None
        self.nodes = 0

    def read(self, text: str) -> Plain:
        documents = 0
        try:
            for event in yaml.parse(text, Loader=yaml.SafeLoader):
                documents += isinstance(event, yaml.DocumentStartEvent)
                if documents > 1:
                    raise self.error(event, "a second document begins here. Write one flow per file.")
                self._handle_event(event)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            line = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
            raise FlowFileError(f"{self.name}{line}: this is not YAML: {error.problem or error.context}.") from error
        except yaml.YAMLError as error:
            raise FlowFileError(f"{self.name}: this is not YAML: {error}") from error
        return self.root

    def error(self, event: yaml.Event, reason: str) -> FlowFileError:
        return FlowFileError(f"{self.name}, line {_line(event)}: {reason}")

    def _handle_event(self, event: yaml.Event) -> None:
        if getattr(event, "tag", None) is not None:
            raise self.error(event, f"the tag {event.tag} is not allowed. Flow files hold plain data; take it out.")  # type: ignore[attr-defined]
        if isinstance(event, yaml.CollectionStartEvent):
            self._open_collection(event)
        elif isinstance(event, yaml.CollectionEndEvent):
            collection = self.stack.pop()
            if collection.anchor:
                self.anchors[collection.anchor] = (collection.content, collection.nodes, collection.height)
            self._add_size(event, collection.nodes, collection.height)
        elif isinstance(event, yaml.AliasEvent):
            self._insert_alias(event)
        elif isinstance(event, yaml.ScalarEvent):
            self._insert_scalar(event)

    def _open_collection(self, event: yaml.CollectionStartEvent) -> None:
        if len(self.stack) >= MAX_DEPTH:
            raise self.error(event, f"this is nested deeper than {MAX_DEPTH} levels. Write a flatter flow.")
        if self._wants_key():
            raise self.error(event, "a list or mapping cannot be a key. Write name: value.")
        content: Plain = {} if isinstance(event, yaml.MappingStartEvent) else []
        path = self._insert(event, content)
        self._count_nodes(event, 1)
        self.stack.append(OpenCollection(content, path, _line(event), event.anchor))
        if event.anchor:
            self.anchors.pop(event.anchor, None)  # until it ends, its name means nothing, not what it meant before

    def _insert_alias(self, event: yaml.AliasEvent) -> None:
        if any(enclosing.anchor == event.anchor for enclosing in self.stack):
            raise self.error(event, f"*{event.anchor} stands inside of what it refers to: a cycle. Take it out.")
        if event.anchor not in self.anchors:
            raise self.error(event, f"*{event.anchor} refers to nothing. Write &{event.anchor} before what it means.")
        content, nodes, height = self.anchors[event.anchor]
        if self._wants_key():
            raise self.error(event, "an alias cannot be a key. Write the name out.")
        if len(self.stack) + height > MAX_DEPTH:
            raise self.error(event, f"with *{event.anchor} this is nested deeper than {MAX_DEPTH} levels.")
        self._insert(event, content)
        self._count_nodes(event, nodes)
        self._add_size(event, nodes, height)

    def _insert_scalar(self, event: yaml.ScalarEvent) -> None:
        if self._wants_key():
            self._set_key(event)
            return
        value = self._parse_scalar(event) if event.implicit[0] else event.value
        if event.anchor:
            self.anchors[event.anchor] = (value, 1, 0)
        self._insert(event, value)
        self._count_nodes(event, 1)
        self._add_size(event, 1, 0)

    def _set_key(self, event: yaml.ScalarEvent) -> None:
        top, key = self.stack[-1], event.value
        if key == "<<" and event.implicit[0]:
            raise self.error(event, "merge keys (<<) are not allowed. Write the fields out.")
        if key in top.lines:
            raise self.error(
                event, f"{key!r} stands here a second time; the first is in line {top.lines[key]}. Keep one."
            )
        top.key, top.lines[key] = key, _line(event)

    def _parse_scalar(self, event: yaml.ScalarEvent) -> Plain:
        text: str = event.value
        if NULL.match(text):
            return None
        if BOOL.match(text):
            return text.lower() == "true"
        if FLOAT.match(text) and len(text) > MAX_DIGITS:
            raise self.error(event, f"a number of {len(text)} characters; at most {MAX_DIGITS} are read.")
        if INT.match(text):
            return int(text)
        if NOT_FINITE.match(text):
            return float(text.replace(".", "", 1))  # YAML writes .inf and .nan
        return float(text) if FLOAT.match(text) else text

    def _wants_key(self) -> bool:
        return bool(self.stack) and isinstance(self.stack[-1].content, dict) and self.stack[-1].key is None

    def _insert(self, event: yaml.Event, value: Plain) -> Path:
        path, line = self._attach(event, value)
        self.lines[path] = line
        return path

    def _attach(self, event: yaml.Event, value: Plain) -> tuple[Path, int]:
        """Attach a value where it belongs; return the path, and the line of the key if there is one."""
        if not self.stack:
            self.root = value
            return (), _line(event)
        top = self.stack[-1]
        if (key := top.key) is not None:
            top.content[key], top.key = value, None
            return (*top.path, key), top.lines[key]
        top.content.append(value)
        return (*top.path, len(top.content) - 1), _line(event)

    def _add_size(self, event: yaml.Event, nodes: int, height: int) -> None:
        if self.stack:
            self.stack[-1].nodes += nodes
            self.stack[-1].height = max(self.stack[-1].height, height + 1)

    def _count_nodes(self, event: yaml.Event, nodes: int) -> None:
        self.nodes += nodes
        if self.nodes > MAX_NODES:
            raise self.error(event, f"more than {MAX_NODES:,} values, aliases counted each time. Write a smaller flow.")


def _line(event: yaml.Event) -> int:
    return event.start_mark.line + 1 if event.start_mark else 1


class YamlWriter(yaml.SafeDumper):
    """A writer that quotes what any version of YAML would read as something else than text, and writes no aliases."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def represent_text(self, data: str) -> yaml.ScalarNode:
        """Represent a text: lines as they are, or in double quotes if YAML would fold a Unicode line break."""
        style = '"' if BREAKS.search(data) else "|" if "\n" in data else None
        return self.represent_scalar("tag:yaml.org,2002:str", data, style=style)


YamlWriter.add_representer(str, YamlWriter.represent_text)
# PyYAML reads 1e5 as a text, YAML 1.2 as a number: with this, the text is written in quotes.
YamlWriter.add_implicit_resolver("tag:yaml.org,2002:float", FLOAT, list("-+.0123456789"))


def dump_yaml(plain: Plain) -> str:
    """Return plain data as YAML."""
    text = yaml.dump(plain, Dumper=YamlWriter, sort_keys=False, allow_unicode=True, default_flow_style=None, width=100)
    return text.removesuffix("...\n")  # PyYAML's end mark after a bare scalar
