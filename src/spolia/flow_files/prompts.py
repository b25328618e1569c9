"""Prompt files: those that come with Spolia, the operators that use them, and the user's own in their place."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from inspect import signature
from pathlib import Path, PurePosixPath
from typing import Any

from spolia.core.function import Function
from spolia.core.operator import Operator
from spolia.core.registry import Catalogue
from spolia.core.replacement import replace_parts
from spolia.errors import PromptError
from spolia.models.prompting import template
from spolia.models.prompting.role import Role
from spolia.models.prompting.template import LANGUAGES
from spolia.types import Value

PACKAGE = Path(__file__).parents[1]


@dataclass(frozen=True)
class ShippedPrompt(Value):
    """A prompt file that comes with Spolia: `name` without its folder `prompts`, and what uses it by default."""

    name: str
    users: tuple[str, ...] = ()

    @property
    def place(self) -> str:
        """Return its place, as a role names it."""
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
        """Return the places in the text that are filled in."""
        return template.read(self.place).places


def list_shipped_prompts(other_classes: Mapping[str, type | None] | None = None) -> dict[str, ShippedPrompt]:
    """List Spolia's own prompt files, by name, with their users: operators and `other_classes` (measures)."""
    users_by_name: dict[str, set[str]] = {name_from_place(Role.repair) or "": {"Role"}}
    for user, cls in [*((cls.type_id(), cls) for cls in Catalogue().operators()), *(other_classes or {}).items()]:
        for name in _prompts_of(cls):
            users_by_name.setdefault(name, set()).add(user)
    return {name: ShippedPrompt(name, tuple(sorted(users_by_name.get(name, ())))) for name in _list_names()}


def _list_names() -> list[str]:
    paths = (path.relative_to(PACKAGE) for path in PACKAGE.rglob("prompts/*.txt"))
    # Two suffixes, as in `label.zh.txt`, are a translation.
    return sorted(f"{path.parent.parent.as_posix()}/{path.stem}" for path in paths if len(path.suffixes) == 1)


def find_prompt(name: str, prompts: Mapping[str, ShippedPrompt]) -> ShippedPrompt:
    """Find a prompt file by its name, or by the last part if that is unique; PromptError otherwise."""
    names = [candidate for candidate in prompts if candidate == name or candidate.endswith(f"/{name}")]
    if len(names) == 1:
        return prompts[names[0]]
    if names:
        raise PromptError(f"Several prompts are called {name!r}: {', '.join(names)}. Write one of these.")
    near = get_close_matches(name, [*prompts, *(candidate.rpartition("/")[2] for candidate in prompts)], 1, 0.5)
    advice = f"Did you mean {near[0]}?" if near else "Write: spolia prompts list."
    raise PromptError(f"No prompt is called {name!r}. {advice}")


def name_from_place(place: str) -> str | None:
    """Return the name of a prompt file from its place; None for one that does not come with Spolia."""
    package, _, inside = place.partition(":")
    path = PurePosixPath(inside)
    return f"{path.parent.parent}/{path.stem}" if package == "spolia" and path.parent.name == "prompts" else None


def overridden(flow: Any, folder: str | Path) -> Any:
    """Replace the prompts of a flow or operator by the files of the same name in a folder.

    The file in the folder is called as the prompt is, `indexing/summary.txt`, with others beside it for other
    languages, `indexing/summary.zh.txt`; PromptError for a file that would never be used, or a place that nobody fills.
    """
    own = _read_overrides(Path(folder))

    def change(value: Any) -> Any:
        if isinstance(value, Function):
            defaults = _replace_defaults(value, change)
            return value.but(**defaults) if defaults else value
        if isinstance(value, Role):
            places = {"prompt": value.prompt, "repair": value.repair}
        elif isinstance(value, Operator) and (place := getattr(value, "prompt_file", getattr(value, "prompt", ""))):
            places = {"prompt": place}
        else:
            return value
        changes = {field: own[name] for field, place in places.items() if (name := name_from_place(place)) in own}
        return value.but(**changes) if changes else value

    return replace_parts(flow, change)


def _replace_defaults(step: Function[Any, Any], change: Callable[[Any], Any]) -> dict[str, Role[Any]]:
    """Return the roles that a step asks with by default, as far as `change` replaces them."""
    arguments = dict(step.arguments)
    changes = {}
    for name, parameter in signature(step.function).parameters.items():
        role = parameter.default
        if name not in arguments and isinstance(role, Role) and (new := change(role)) is not role:
            changes[name] = new
    return changes


def _read_overrides(folder: Path) -> dict[str | None, str]:
    """Return the places of the prompt files in the user's folder, by the names of the prompts that they replace."""
    if not folder.is_dir():
        raise PromptError(f"There is no folder {str(folder)!r}. Write: spolia prompts override NAME --into {folder}.")
    shipped_prompts, places = {name: ShippedPrompt(name) for name in _list_names()}, dict[str | None, str]()
    for path in sorted(folder.rglob("*.txt")):
        name, _, language = path.relative_to(folder).with_suffix("").as_posix().partition(".")
        if name not in shipped_prompts or (language and language not in LANGUAGES):
            near = get_close_matches(name, shipped_prompts, 1, 0.4) or ["indexing/summary"]
            raise PromptError(f"{path} is in the place of no prompt. Write a name as {near[0]}.txt, or take it out.")
        if unknown := template.read(str(path)).places - shipped_prompts[name].places:
            raise PromptError(
                f"{path} has a place {{{{{min(unknown)}}}}}, which is never filled. Write some of "
                f"{', '.join(sorted(shipped_prompts[name].places)) or 'no places'}."
            )
        if not (main := folder / f"{name}.txt").is_file():
            raise PromptError(
                f"{path} is beside no {main.name}, which is what all other languages get. Write that too."
            )
        places[name] = str(main)
    return places


def _prompts_of(cls: Any) -> Iterator[str]:
    """Yield the prompts of a class: of roles that are defaults of its fields, and of its `prompts`."""
    yield from getattr(cls, "prompts", ())
    for declared in fields(cls) if hasattr(cls, "__dataclass_fields__") else ():
        place = declared.default.prompt if isinstance(declared.default, Role) else declared.default
        if isinstance(place, str) and (name := name_from_place(place)) is not None:
            yield name
