"""Flows as files: `load` and `dump`."""

from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from os.path import abspath, isfile
from pathlib import Path
from typing import Any

from spolia.core.codec import Plain, decode, encode
from spolia.core.environment import allow_env, refuse_env
from spolia.core.operator import Operator
from spolia.core.registry import Catalogue
from spolia.errors import CodecError, FlowFileError
from spolia.flow_files.yaml_text import Path as Place
from spolia.flow_files.yaml_text import YamlReader, written
from spolia.stores.definition import Definition
from spolia.types.value import names_checked

MAX_BYTES = 1_000_000
SUFFIXES = (".yaml", ".yml", ".json")
MOST_FILES = 100
"""Flow files that one may name."""
WEIGHTS = ({"folder"}, {"folder", "sha256"})
"""The fields of trained weights: a folder that begins with a dot is beside the file."""


@names_checked
def load(
    source: str | Path,
    given: Mapping[str, Any] | None = None,
    operators: Iterable[Operator[Any, Any] | type] = (),
    env: Collection[str] = (),
) -> Operator[Any, Any]:
    """The flow that a file describes. Nothing that the file names is imported, and nothing is run or opened but the
    flow files that it names: `{use: other.yaml}`, beside it.

    Args:
        source: a path, or the text itself. A text of one line that ends in .yaml, .yml or .json is a path.
        given: stores, models and the like by the names that the file uses: `{use: name}`.
        operators: operators that are neither built in nor installed: instances or classes.
        env: names of the environment variables that the file may have read, for keys and passwords. Its own addresses
            then send their values to the servers that it names. A variable that the file does not write, but its
            class names by default, as `OPENAI_API_KEY`, needs to be allowed if it is set.

    Raises:
        FlowFileError: the file cannot be read, or does not describe a flow; says the line and what to write.

    >>> load("[Identity, {Samples: {n: 3}}]")
    Identity() >> Samples(n=3)
    """
    return decoded(source, Operator, given, operators, "an operator, for example Identity, or a list of operators", env)  # type: ignore[no-any-return]


def decoded(
    source: str | Path,
    declared: Any,
    given: Mapping[str, Any] | None,
    operators: Iterable[Operator[Any, Any] | type],
    expected: str,
    env: Collection[str] = (),
) -> Any:
    """What a file describes, which is of a declared type (see `load`); `expected` is what an empty file should hold."""
    if not isinstance(source, (str, Path)):
        raise FlowFileError(f"{source!r:.80} is not a flow file. Write its path, or its text.")
    name, text = _text(source, expected)
    plain, lines = _read(name, text)
    if plain is None:
        raise FlowFileError(f"{name} is empty. Write {expected}.")
    plain = _placed(plain, Path(name).resolve().parent, given or ())
    try:
        with allow_env(*env):
            return decode(plain, declared, known=Catalogue(operators), given=given, accept=refuse_env)
    except CodecError as error:
        place = error.place
        while place not in lines:
            place = place[:-1]
        where = f", at {'.'.join(map(str, error.place))}" if error.place else ""
        raise FlowFileError(f"{name}, line {lines[place]}{where}: {error.reason}") from error


@lru_cache(maxsize=1)
def _read(name: str, text: str) -> tuple[Plain, Mapping[Place, int]]:
    """The data of a file, and the line of each place. The command line decodes a file twice: with stand-ins, to see
    what it needs, and with what it is given."""
    reader = YamlReader(name)
    return reader.read(text), reader.lines


def _placed(plain: Plain, base: Path, given: Collection[str]) -> Plain:
    """The data of a file in a folder, with the flow files that it names, and absolute folders of trained weights;
    `given` are names that are no files."""
    files: dict[Path, Plain] = {}

    def placed(plain: Plain, base: Path, outer: bool) -> Plain:
        if isinstance(plain, list):
            return [placed(one, base, outer) for one in plain]
        if not isinstance(plain, dict):
            return plain
        if set(plain) in WEIGHTS and str(plain["folder"]).startswith("."):
            return plain | {"folder": abspath(base / str(plain["folder"]))}
        file = plain.get("use") if len(plain) == 1 else None
        if not isinstance(file, str) or file in given or not file.lower().endswith(SUFFIXES):
            return {name: placed(one, base, outer) for name, one in plain.items()}
        if not isfile(base / file):  # a pipe would be waited for
            raise FlowFileError(
                f"{str(base / file)!r:.200} is not a file. Name a flow file beside the one that names it."
            )
        return included((base / file).resolve(), outer)

    def included(path: Path, outer: bool) -> Plain:
        if not outer or len(files) == MOST_FILES:
            reason = f"is more than the {MOST_FILES} files" if outer else "is named by a file that a flow file names"
            raise FlowFileError(f"{path} {reason}. Write its operators in its place.")
        if path not in files:
            found, _ = _read(*_text(path, "an operator"))
            files[path] = placed(found, path.parent, False)
        return files[path]

    return placed(plain, base, True)


def self_contained(file: Path) -> bytes:
    """A flow file as it is if it can be moved alone; else with what it names in place of the names."""
    name, text = _text(file, "an operator")
    plain, _ = _read(name, text)
    placed = _placed(plain, file.resolve().parent, ())
    return file.read_bytes() if placed == plain else written(placed).encode()


def dump(flow: Operator[Any, Any], given: Mapping[str, Any] | None = None, folder: Path | None = None) -> str:
    """The text of a flow file that `load` reads back as an equal flow.

    Args:
        given: objects to write by name, as `{use: name}`; everything else is written out.
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
    plain = encode(flow, Operator, given=given)
    return written(plain if folder is None else _beside(plain, str(folder)))


def _beside(plain: Plain, folder: str) -> Plain:
    """Plain data in which trained weights in a folder are beside the file."""
    if isinstance(plain, list):
        return [_beside(one, folder) for one in plain]
    if not isinstance(plain, dict):
        return plain
    if set(plain) in WEIGHTS and plain["folder"] == folder:
        return plain | {"folder": "."}
    return {name: _beside(one, folder) for name, one in plain.items()}


def _text(source: str | Path, expected: str) -> tuple[str, str]:
    """The name of the source for messages, and its text."""
    if isinstance(source, str) and ("\n" in source or not source.strip().lower().endswith(SUFFIXES)):
        if len(source) > MAX_BYTES:
            raise FlowFileError(f"The flow has {len(source):,} characters; at most {MAX_BYTES:,} are read.")
        return "flow", source
    path = Path(source)
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise FlowFileError(f"{path}: {reason}. Give the path of a file with {expected}.") from error
    if len(raw) > MAX_BYTES:
        raise FlowFileError(f"{path} is larger than {MAX_BYTES:,} bytes, which no flow is. Is it another file?")
    try:
        return str(path), raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise FlowFileError(f"{path} is not UTF-8 (byte {error.start}). Save it as UTF-8.") from error


def load_definitions(
    source: str | Path,
    given: Mapping[str, Any] | None = None,
    operators: Iterable[Operator[Any, Any] | type] = (),
) -> dict[str, Definition]:
    """What a file says that node groups are made of, by their names; FlowFileError if it does not."""
    expected = "groups by name, for example small: {transform: Sentences, parent: chunk}"
    found: dict[str, Definition] = decoded(source, dict[str, Definition], given, operators, expected)
    return found


def load_named(
    name: str,
    source: str | Path,
    given: Mapping[str, Any] | None = None,
    operators: Iterable[Operator[Any, Any] | type] = (),
) -> Definition:
    """What a file says of one group, whether it says nothing else or names several; FlowFileError if it does not."""
    expected = "what the group is made of, for example {transform: Sentences}"
    try:
        return decoded(source, Definition, given, operators, expected)  # type: ignore[no-any-return]
    except FlowFileError as error:
        try:
            several = load_definitions(source, given, operators)
        except FlowFileError as within:
            raise within if f", at {name}." in str(within) else error from None
        if not several:
            raise
        if name not in several:
            raise FlowFileError(f"{source} defines {', '.join(several)}, not {name}. Write one of these.") from error
        return several[name]
