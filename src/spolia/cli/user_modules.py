"""Python modules of the user: functions, operators, groups, measures, and readers of files."""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from inspect import isabstract
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from spolia import models
from spolia.core.fingerprint.packages import place_of
from spolia.core.operator import Operator
from spolia.errors import QueryError
from spolia.evaluation.measures.measure import SetMeasure
from spolia.models.protocols import Embedder
from spolia.stores.corpus import NodeGroup
from spolia.stores.definition import Definition

if TYPE_CHECKING:
    from spolia.indexing.readers.reader import FileReader

READERS = "READERS"
"""What a module calls its readers."""


@dataclass(frozen=True)
class UserModules:
    """Contents of modules: operators and their classes, groups by name, classes of measures, readers by pattern."""

    operators: tuple[Operator[Any, Any] | type, ...] = ()
    groups: Mapping[str, Definition] = field(default_factory=dict)
    measures: tuple[type[SetMeasure], ...] = ()
    readers: "Mapping[str, FileReader | Callable[[Any], Any]]" = field(default_factory=dict)


def load_user_modules(addresses: Sequence[str] | None) -> UserModules:
    """Load modules, each written as `acme.cutting`, `cutting.py`, or with `:NAME` for one thing of it."""
    operators: list[Operator[Any, Any] | type] = []
    groups: dict[str, Definition] = {}
    measures: list[type[SetMeasure]] = []
    readers: dict[str, FileReader | Callable[[Any], Any]] = {}
    for address in addresses or ():
        for name, value in _load_definitions(address).items():
            if isinstance(value, NodeGroup) and value.definition is not None:
                groups[value.name] = value.definition
            elif isinstance(value, Definition):
                groups[name] = value
            elif _is_measure(value):
                measures.append(value)
            elif name == READERS:
                readers |= _check_readers(address, value)
            else:
                operators.append(value)
    return UserModules(tuple(operators), groups, tuple(measures), readers)


def load_user_embedder(address: str) -> Embedder:
    """Load the embedder `FILE.py:NAME`: an object with the members of one, or a function from texts to vectors."""
    place, _, name = address.rpartition(":")
    value = getattr(load_user_module(place, "--embedder"), name, None)
    if isinstance(value, Embedder) and not isinstance(value, type):
        return value
    if not callable(value):
        raise QueryError(f"--embedder {address}: {place} has no function {name!r}. Write one from texts to vectors.")
    return models.FunctionEmbedder(value)


def _check_readers(place: str, readers: object) -> "Mapping[str, FileReader | Callable[[Any], Any]]":
    pairs = list(readers.items()) if isinstance(readers, Mapping) else []
    reads = [callable(reader) or callable(getattr(reader, "read", None)) for _, reader in pairs]
    if isinstance(readers, Mapping) and all(reads) and all(isinstance(name, str) for name, _ in pairs):
        return readers
    raise QueryError(
        f"--known {place}: {READERS} is {readers!r:.100}. Write {READERS} = {{'*.foo': my_function, "
        "'*.pdf': PdfReader()}, patterns with functions or readers."
    )


def _load_definitions(address: str) -> dict[str, Any]:
    place, _, member = address.partition(":")
    module = load_user_module(place)
    if member and not hasattr(module, member):
        raise QueryError(
            f"--known {address}: {place} has no {member!r}. Write the name of a function or definition in it."
        )
    members = {member: getattr(module, member)} if member else vars(module)
    things = {name: value for name, value in members.items() if name == READERS or _is_user_definition(value)}
    for name, value in members.items():
        if lacking := _lacks(value):
            raise QueryError(
                f"--known {address}: the measure {name} has no {' and no '.join(lacking)}. Write what every measure "
                "has, as in docs/reference/measures.md under Your own."
            )
    if not things:
        raise QueryError(
            f"--known {address}: there is no operator, no measure, no definition of a group and no {READERS}. Write "
            "functions under @transform or @step there, classes of operators or of measures, NAME = Definition(...), "
            f"or {READERS} = {{'*.foo': my_function}}."
        )
    return things


def _is_user_definition(value: object) -> bool:
    """Check whether a value is something that a file may name and Spolia does not have itself."""
    if isinstance(value, (Definition, NodeGroup)) or _is_measure(value):
        return True
    kind = value if isinstance(value, type) else type(value)
    return issubclass(kind, Operator) and not kind.__module__.startswith("spolia.")


def _is_measure(value: object) -> bool:
    """Check whether a value is a class of measures that can be used, and not only a base of such classes."""
    is_class = isinstance(value, type) and issubclass(value, SetMeasure) and not value.__module__.startswith("spolia.")
    return is_class and not isabstract(value) and hasattr(value, "notation")


def _lacks(value: object) -> tuple[str, ...]:
    """Return the methods that a measure with a name of its own lacks."""
    is_class = isinstance(value, type) and issubclass(value, SetMeasure) and "notation" in vars(value)
    return tuple(sorted(getattr(value, "__abstractmethods__", ()))) if is_class else ()


def load_user_module(place: str, option: str = "--known") -> ModuleType:
    """Load a module by its name, or by its file under the name by which Python programs beside it import it."""
    path = Path(place)
    is_file = place.endswith(".py") or path.is_file()
    if is_file and not path.is_file():
        raise QueryError(f"{option} {place}: file not found. Write the path of a Python file, or a module's name.")
    name, folder = _module_name(path.resolve()) if is_file else (place, Path.cwd())
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    try:
        module = import_module(name)
    except Exception as error:
        position = f" (in {place_of_error})" if (place_of_error := place_of(error)) else ""
        raise QueryError(
            f"{option} {place} cannot be imported: {type(error).__name__}: {error}{position}. Write the path of a "
            "Python file, or the name of a module that Python finds."
        ) from error
    if is_file and not (module.__file__ and path.samefile(module.__file__)):
        raise QueryError(
            f"{option} {place}: Python has another module of the name {name}, {module.__file__ or 'built in'}. Give "
            "the file a name of its own."
        )
    return module


def _module_name(file: Path) -> tuple[str, Path]:
    """Return the name of the module in a file, and the folder above all its packages, from which it is imported."""
    names, folder = [file.stem], file.parent
    while (folder / "__init__.py").is_file():
        names.insert(0, folder.name)
        folder = folder.parent
    return ".".join(names), folder
