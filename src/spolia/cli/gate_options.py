"""How a gate was asked, as its baseline keeps it: with paths from where that is, so that it may be asked anywhere."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from spolia.cli.flow_parts import is_file
from spolia.errors import DataError
from spolia.types import Value


@dataclass(frozen=True)
class GateOptions(Value):
    """The options of a gate that its baseline keeps; empty ones are not set."""

    flow: str = ""
    data: str = ""
    store: str = ""
    split: str = ""
    limit: str = ""
    seed: str = ""
    tolerance: tuple[str, ...] = ()
    rule: str = ""
    known: tuple[str, ...] = ()
    prompts: str = ""

    @classmethod
    def read(cls, command: Mapping[str, str | list[str]], baseline: Path) -> Self:
        """What a baseline says, with paths from here; `DataError` if that is no options."""
        names = cls.__dataclass_fields__
        several = {name for name in names if isinstance(getattr(cls, name), tuple)}
        for name, value in command.items():
            fits = isinstance(value, list if name in several else str)
            fits &= name not in ("limit", "seed") or str(value).isdecimal()
            if name not in names or not fits or not all(isinstance(one, str) for one in value):
                raise DataError(
                    f"{baseline}: 'command' has {name!r}: {value!r}. Write a text there, or texts for tolerance and "
                    f"known, of: {', '.join(names)}."
                )
        plain: dict[str, Any] = {n: tuple(value) if isinstance(value, list) else value for n, value in command.items()}
        return cls(**plain)._moved(Path(os.path.relpath(baseline.resolve().parent)))

    def kept(self, baseline: Path) -> dict[str, str | list[str]]:
        """What the baseline is to say, with paths from where it is."""
        moved = self._moved(Path(os.path.relpath(Path.cwd(), baseline.resolve().parent)))
        said = {name: getattr(moved, name) for name in self.__dataclass_fields__}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in said.items() if value}

    def over(self, other: "GateOptions") -> Self:
        """These, and where nothing is said the others."""
        return self.but(**{name: getattr(self, name) or getattr(other, name) for name in self.__dataclass_fields__})

    def _moved(self, folder: Path) -> Self:
        """The paths seen from elsewhere, where this folder is the present one."""

        def moved(path: str) -> str:
            return Path(os.path.normpath(folder / path)).as_posix()

        def named(module: str) -> str:
            place, colon, name = module.partition(":")
            return moved(place) + colon + name if place.endswith(".py") else module

        return self.but(
            flow=moved(self.flow) if is_path(self.flow) else self.flow,
            data=moved(self.data) if self.data else "",
            store=moved(self.store) if self.store and "://" not in self.store else self.store,
            known=tuple(map(named, self.known)),
            prompts=moved(self.prompts) if self.prompts else "",
        )


def is_path(flow: str) -> bool:
    """Whether a flow is named by its file, which need not be seen from here."""
    return bool(flow) and (is_file(flow) or "/" in flow or os.sep in flow)
