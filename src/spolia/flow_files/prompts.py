"""Every prompt file that there is, who asks with it, and files of the user's own in their place."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from inspect import signature
from pathlib import Path, PurePosixPath
from typing import Any

from spolia.core.function import Function
from spolia.core.operator import Operator
from spolia.core.registry import Catalogue
from spolia.core.replacement import replaced
from spolia.errors import PromptError
from spolia.models.prompting import template
from spolia.models.prompting.role import Role
from spolia.models.prompting.template import LANGUAGES
from spolia.types import Value

PACKAGE = Path(__file__).parents[1]


@dataclass(frozen=True)
class ShippedPrompt(Value):
    """A prompt file that comes with Spolia, `name` without its folder `prompts`, and what asks with it by default."""

    name: str
    asked_by: tuple[str, ...] = ()

    @property
    def place(self) -> str:
        """Where it is, as a role names it."""
        folder, _, file = self.name.rpartition("/")
        return f"spolia:{folder}/prompts/{file}.txt"

    @property
    def texts(self) -> dict[str, str]:
        return {language: template.read_text(self.place, language) for language in self.languages}

    @property
    def languages(self) -> tuple[str, ...]:
        return tuple(template.read_all(self.place))

    @property
    def places(self) -> frozenset[str]:
        """What is filled in."""
        return template.read(self.place).places


def shipped(others: Mapping[str, type | None] | None = None) -> dict[str, ShippedPrompt]:
    """Every prompt file that comes with Spolia, by name, with what asks by it: operators and `others` (measures)."""
    users: dict[str, set[str]] = {name_of(Role.repair) or "": {"Role"}}
    for called, cls in [*((cls.type_id(), cls) for cls in Catalogue().operators()), *(others or {}).items()]:
        for name in _asked_with(cls):
            users.setdefault(name, set()).add(called)
    return {name: ShippedPrompt(name, tuple(sorted(users.get(name, ())))) for name in _names()}


def _names() -> list[str]:
    found = (path.relative_to(PACKAGE) for path in PACKAGE.rglob("prompts/*.txt"))
    return sorted(f"{path.parent.parent.as_posix()}/{path.stem}" for path in found if len(path.suffixes) == 1)


def prompt_called(name: str, every: Mapping[str, ShippedPrompt]) -> ShippedPrompt:
    """The prompt file of a name, or of its last part where only one of them all has that; PromptError otherwise."""
    found = [one for one in every if one == name or one.endswith(f"/{name}")]
    if len(found) == 1:
        return every[found[0]]
    if found:
        raise PromptError(f"Several prompts are called {name!r}: {', '.join(found)}. Write one of these.")
    near = get_close_matches(name, [*every, *(one.rpartition("/")[2] for one in every)], 1, 0.5)
    advice = f"Did you mean {near[0]}?" if near else "Write: spolia prompts list."
    raise PromptError(f"No prompt is called {name!r}. {advice}")


def name_of(place: str) -> str | None:
    """The name of a prompt file by its place; None for one that does not come with Spolia."""
    package, _, inside = place.partition(":")
    path = PurePosixPath(inside)
    return f"{path.parent.parent}/{path.stem}" if package == "spolia" and path.parent.name == "prompts" else None


def overridden(flow: Any, folder: str | Path) -> Any:
    """A flow, or any operator, with the prompt files of a folder in the place of those of the same name.

    The file in the folder is called as the prompt is, `indexing/summary.txt`, with others beside it for other
    languages, `indexing/summary.zh.txt`; PromptError for a file that would never be used, or a place that nobody fills.
    """
    own = _own(Path(folder))

    def change(value: Any) -> Any:
        if isinstance(value, Function):
            defaults = _own_defaults(value, change)
            return value.but(**defaults) if defaults else value
        if isinstance(value, Role):
            found = {"prompt": value.prompt, "repair": value.repair}
        elif isinstance(value, Operator) and (place := getattr(value, "prompt_file", getattr(value, "prompt", ""))):
            found = {"prompt": place}
        else:
            return value
        changes = {field: own[name] for field, place in found.items() if (name := name_of(place)) in own}
        return value.but(**changes) if changes else value

    return replaced(flow, change)


def _own_defaults(step: Function[Any, Any], change: Callable[[Any], Any]) -> dict[str, Role[Any]]:
    """Return the roles that a step asks with by default, as far as `change` replaces them."""
    given = dict(step.arguments)
    changes = {}
    for name, parameter in signature(step.function).parameters.items():
        role = parameter.default
        if name not in given and isinstance(role, Role) and (new := change(role)) is not role:
            changes[name] = new
    return changes


def _own(folder: Path) -> dict[str | None, str]:
    """The places of the prompt files in the user's folder, by the names of the prompts that they replace."""
    if not folder.is_dir():
        raise PromptError(f"There is no folder {str(folder)!r}. Write: spolia prompts override NAME --into {folder}.")
    every, found = {name: ShippedPrompt(name) for name in _names()}, dict[str | None, str]()
    for path in sorted(folder.rglob("*.txt")):
        name, _, language = path.relative_to(folder).with_suffix("").as_posix().partition(".")
        if name not in every or (language and language not in LANGUAGES):
            near = get_close_matches(name, every, 1, 0.4) or ["indexing/summary"]
            raise PromptError(f"{path} is in the place of no prompt. Write a name as {near[0]}.txt, or take it out.")
        if unknown := template.read(str(path)).places - every[name].places:
            raise PromptError(
                f"{path} has a place {{{{{min(unknown)}}}}}, which is never filled. Write some of "
                f"{', '.join(sorted(every[name].places)) or 'no places'}."
            )
        if not (main := folder / f"{name}.txt").is_file():
            raise PromptError(
                f"{path} is beside no {main.name}, which is what all other languages get. Write that too."
            )
        found[name] = str(main)
    return found


def _asked_with(cls: Any) -> Iterator[str]:
    """The prompts of a class: of roles that are defaults of its fields, and of its `prompts`."""
    yield from getattr(cls, "prompts", ())
    for declared in fields(cls) if hasattr(cls, "__dataclass_fields__") else ():
        given = declared.default.prompt if isinstance(declared.default, Role) else declared.default
        if isinstance(given, str) and (name := name_of(given)) is not None:
            yield name
