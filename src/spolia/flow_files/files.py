"""Functions that read and write flows as files: `load` and `dump`."""

from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from os.path import abspath, isfile
from pathlib import Path
from typing import Any

from spolia.core.codec import Plain, decode, encode
from spolia.core.deprecation import renamed_arguments
from spolia.core.environment import allow_env, refuse_env
from spolia.core.operator import Operator
from spolia.core.registry import Catalogue
from spolia.errors import CodecError, FlowFileError
from spolia.flow_files.yaml_text import Path as Place
from spolia.flow_files.yaml_text import YamlReader, dump_yaml
from spolia.stores.definition import Definition
from spolia.types.value import check_names

MAX_BYTES = 1_000_000  # a flow may be sent by somebody else
SUFFIXES = (".yaml", ".yml", ".json")
MAX_FILES = 100
"""Flow files that one may name."""
WEIGHTS = ({"folder"}, {"folder", "sha256"})
"""The fields of trained weights: a folder that begins with a dot is beside the file."""


@renamed_arguments(given="objects")
@check_names
def load(
    source: str | Path,
    objects: Mapping[str, Any] | None = None,
    operators: Iterable[Operator[Any, Any] | type] = (),
    env: Collection[str] = (),
) -> Operator[Any, Any]:
    """Load the flow that a file describes. Only the flow files that it names, `{use: other.yaml}` beside it, are
    opened; nothing is imported or run.

    Args:
        source: a path, or the text itself. A text of one line that ends in .yaml, .yml or .json is a path.
        objects: stores, models and the like by the names that the file uses: `{use: name}`.
        operators: operators that are neither built in nor installed: instances or classes.
        env: names of the environment variables that the file may have read, for keys and passwords. Its own addresses
            then send their values to the servers that it names. A variable that the file does not write, but its
            class names by default, as `OPENAI_API_KEY`, needs to be allowed if it is set.

    Raises:
        FlowFileError: the file cannot be read, or does not describe a flow; says the line and what to write.

    >>> load("[Identity, {Samples: {n: 3}}]")
    Identity() >> Samples(n=3)
    """
    expected = "an operator, for example Identity, or a list of operators"
    return decode_file(source, Operator, objects, operators, expected, env)  # type: ignore[no-any-return]


def decode_file(
    source: str | Path,
    declared: Any,
    objects: Mapping[str, Any] | None,
    operators: Iterable[Operator[Any, Any] | type],
    expected: str,
    env: Collection[str] = (),
) -> Any:
    """Decode a file to a declared type (see `load`); `expected` is what an empty file should hold."""
    if not isinstance(source, (str, Path)):
        raise FlowFileError(f"{source!r:.80} is not a flow file. Write its path, or its text.")
    name, text = _read_text(source, expected)
    plain, lines = _parse_text(name, text)
    if plain is None:
        raise FlowFileError(f"{name} is empty. Write {expected}.")
    plain = _resolve_files(plain, Path(name).resolve().parent, objects or ())
    try:
        with allow_env(*env):
            return decode(plain, declared, classes=Catalogue(operators), objects=objects, accept=refuse_env)
    except CodecError as error:
        place = error.place
        while place not in lines:  # a field that the file leaves out has no line: that of what is around it
            place = place[:-1]
        position = f", at {'.'.join(map(str, error.place))}" if error.place else ""
        raise FlowFileError(f"{name}, line {lines[place]}{position}: {error.reason}") from error


@lru_cache(maxsize=1)
def _parse_text(name: str, text: str) -> tuple[Plain, Mapping[Place, int]]:
    """Parse a file to data, with the line of each place. Cached, since the command line decodes a file twice: with
    stand-ins, to see what it needs, and with the real objects."""
    reader = YamlReader(name)
    return reader.read(text), reader.lines


def _resolve_files(plain: Plain, base: Path, names: Collection[str]) -> Plain:
    """Insert the flow files that a file names, and make folders of trained weights absolute; `names` are no files."""
    files: dict[Path, Plain] = {}

    def resolve(plain: Plain, base: Path, outer: bool) -> Plain:
        if isinstance(plain, list):
            return [resolve(item, base, outer) for item in plain]
        if not isinstance(plain, dict):
            return plain
        if set(plain) in WEIGHTS and str(plain["folder"]).startswith("."):
            return plain | {"folder": abspath(base / str(plain["folder"]))}
        file = plain.get("use") if len(plain) == 1 else None
        if not isinstance(file, str) or file in names or not file.lower().endswith(SUFFIXES):
            return {name: resolve(item, base, outer) for name, item in plain.items()}
        if not isfile(base / file):  # a pipe would be waited for
            raise FlowFileError(
                f"{str(base / file)!r:.200} is not a file. Name a flow file beside the one that names it."
            )
        return include((base / file).resolve(), outer)

    def include(path: Path, outer: bool) -> Plain:
        if not outer or len(files) == MAX_FILES:  # One level only, so that no chain of files has to be followed.
            reason = f"is more than the {MAX_FILES} files" if outer else "is named by a file that a flow file names"
            raise FlowFileError(f"{path} {reason}. Write its operators in its place.")
        if path not in files:
            included_plain, _ = _parse_text(*_read_text(path, "an operator"))
            files[path] = resolve(included_plain, path.parent, False)
        return files[path]

    return resolve(plain, base, True)


def inline_files(file: Path) -> bytes:
    """Return a flow file that can be moved alone: as it is, or with the files that it names inserted."""
    name, text = _read_text(file, "an operator")
    plain, _ = _parse_text(name, text)
    resolved = _resolve_files(plain, file.resolve().parent, ())
    return file.read_bytes() if resolved == plain else dump_yaml(resolved).encode()


@renamed_arguments(given="objects")
def dump(flow: Operator[Any, Any], objects: Mapping[str, Any] | None = None, folder: Path | None = None) -> str:
    """Return the text of a flow file that `load` reads back as an equal flow.

    Args:
        objects: objects to write by name, as `{use: name}`; everything else is written out.
        folder: where the file will be; trained weights there are written as `.`, so that the folder can be moved.

    Raises:
        CodecError: something in the flow has no plain form.

    >>> from spolia.core.combinators import Branch, Identity, Samples
    >>> print(dump(Identity() >> Branch(Samples(2), Samples(3))), end="")
    - Identity
    - Branch:
      - Samples: {n: 2}
      - Samples: {n: 3}
    """
    plain = encode(flow, Operator, objects=objects)
    return dump_yaml(plain if folder is None else _make_weights_relative(plain, str(folder)))


def _make_weights_relative(plain: Plain, folder: str) -> Plain:
    """Return plain data with trained weights in a folder written relative to the file."""
    if isinstance(plain, list):
        return [_make_weights_relative(item, folder) for item in plain]
    if not isinstance(plain, dict):
        return plain
    if set(plain) in WEIGHTS and plain["folder"] == folder:
        return plain | {"folder": "."}
    return {name: _make_weights_relative(item, folder) for name, item in plain.items()}


def _read_text(source: str | Path, expected: str) -> tuple[str, str]:
    """Return the name of the source for messages, and its text."""
    if isinstance(source, str) and ("\n" in source or not source.strip().lower().endswith(SUFFIXES)):
        if len(source) > MAX_BYTES:
            raise FlowFileError(f"The flow has {len(source):,} characters; at most {MAX_BYTES:,} are read.")
        return "flow", source
    path = Path(source)
    try:
        with path.open("rb") as file:
            # one byte more than allowed tells that there is too much, also of a file that grows
            raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise FlowFileError(f"{path}: {reason}. Give the path of a file with {expected}.") from error
    if len(raw) > MAX_BYTES:
        raise FlowFileError(f"{path} is larger than {MAX_BYTES:,} bytes, which no flow is. Is it another file?")
    try:
        return str(path), raw.decode("utf-8-sig")  # editors on Windows put a mark before the text
    except UnicodeDecodeError as error:
        raise FlowFileError(f"{path} is not UTF-8 (byte {error.start}). Save it as UTF-8.") from error


def load_definitions(
    source: str | Path,
    objects: Mapping[str, Any] | None = None,
    operators: Iterable[Operator[Any, Any] | type] = (),
) -> dict[str, Definition]:
    """Load definitions of node groups, by name; FlowFileError if the file has something else."""
    expected = "groups by name, for example small: {transform: Sentences, parent: chunk}"
    definitions: dict[str, Definition] = decode_file(source, dict[str, Definition], objects, operators, expected)
    return definitions


def load_definition(
    name: str,
    source: str | Path,
    objects: Mapping[str, Any] | None = None,
    operators: Iterable[Operator[Any, Any] | type] = (),
) -> Definition:
    """Load the definition of one group from a file that holds it alone or several by name; FlowFileError otherwise."""
    expected = "what the group is made of, for example {transform: Sentences}"
    try:
        return decode_file(source, Definition, objects, operators, expected)  # type: ignore[no-any-return]
    except FlowFileError as error:
        try:
            definitions = load_definitions(source, objects, operators)
        except FlowFileError as definitions_error:
            # A mistake inside this group shows that the file names groups; else it defines one.
            raise definitions_error if f", at {name}." in str(definitions_error) else error from None
        if not definitions:
            raise
        if name not in definitions:
            raise FlowFileError(
                f"{source} defines {', '.join(definitions)}, not {name}. Write one of these."
            ) from error
        return definitions[name]
