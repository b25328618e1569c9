"""Addresses of groups as those see them who build groups: corpus.py, which defines the classes, imports these."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol, Self, TypeVar, runtime_checkable

from spolia.errors import GroupError
from spolia.stores.backends.backend import Backend
from spolia.stores.definition import Definition

if TYPE_CHECKING:
    from spolia.stores.snapshot.snapshot import Snapshot


@runtime_checkable
class NamesGroups(Protocol):
    """Address of a store that has node groups."""

    def exists(self) -> bool: ...
    def snapshot(self) -> "Snapshot": ...
    def group(self, name: str = ..., definition: Definition | None = ...) -> "GroupAddress": ...


class CorpusAddress(NamesGroups, Protocol):
    """Address of a store in which groups are built."""

    @property
    def path(self) -> str: ...
    @property
    def wait_s(self) -> float: ...
    @property
    def backend(self) -> Backend: ...
    @property
    def definitions(self) -> dict[str, Definition]: ...
    def latest(self) -> "Snapshot": ...


@runtime_checkable
class GroupAddress(Protocol):
    """Address of a node group, with what it is made of; None for what the store says."""

    @property
    def corpus(self) -> CorpusAddress: ...
    @property
    def name(self) -> str: ...
    @property
    def definition(self) -> Definition | None: ...
    def snapshot(self) -> "Snapshot": ...
    def but(self, **changes: object) -> Self: ...


G = TypeVar("G", bound=GroupAddress)


def refuse_no_group(value: object, caller: str) -> None:
    """Raise GroupError for a value that is not a node group.

    >>> refuse_no_group("page", "BM25")
    Traceback (most recent call last):
    spolia.errors.GroupError: BM25 wants a node group, and was given 'page' (str). Write Corpus(PATH).group('page').
    """
    if isinstance(value, GroupAddress):
        return
    example, group_list = "Corpus(PATH).group(NAME)", ""
    if isinstance(value, str):
        example = f"Corpus(PATH).group({value!r})"
    if isinstance(value, NamesGroups):
        example, names = "corpus.group(NAME)", value.snapshot().groups() if value.exists() else ()
        group_list = f"; its groups are: {', '.join(names)}" if names else ""
    description = f"{value!r:.80} ({type(value).__name__})"
    raise GroupError(f"{caller} wants a node group, and was given {description}. Write {example}{group_list}.")


def refuse_no_groups(groups: Iterable[G], caller: str) -> tuple[G, ...]:
    """Return the node groups of a list; raise GroupError for anything else.

    >>> from spolia import Corpus
    >>> refuse_no_groups(Corpus("notes.spolia").group("page"), "materialise")
    Traceback (most recent call last):
    spolia.errors.GroupError: materialise wants a list of node groups, and was given one. Write [corpus.group('page')].
    """
    if isinstance(groups, GroupAddress):
        example = f"[corpus.group({groups.name!r})]"
        raise GroupError(f"{caller} wants a list of node groups, and was given one. Write {example}.")
    if isinstance(groups, str) or not isinstance(groups, Iterable):
        refuse_no_group(groups, caller)
    listed = tuple(groups)
    for group in listed:
        refuse_no_group(group, caller)
    return listed
