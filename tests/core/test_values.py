"""Values: changing some fields of one is making it anew."""

from __future__ import annotations

from dataclasses import InitVar, dataclass, field, replace

import pytest

from spolia.types import Value


@dataclass(frozen=True)
class Plain(Value):
    name: str
    count: int = 1
    noted: str = field(default="", compare=False)


@dataclass(frozen=True)
class Checked(Plain):
    def __post_init__(self) -> None:
        if self.count < 0:
            raise ValueError("below 0")
        object.__setattr__(self, "name", self.name.strip())


@dataclass(frozen=True)
class Derived(Value):
    name: str
    length: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "length", len(self.name))


@dataclass(frozen=True)
class Seeded(Value):
    name: str
    seed: InitVar[int] = 0


@dataclass(frozen=True)
class Written(Value):
    names: tuple[str, ...] = ()

    def __init__(self, *names: str) -> None:
        object.__setattr__(self, "names", names)


class Undecorated(Plain):
    pass


@pytest.mark.parametrize("one", [Plain("a", 2, "n"), Checked("a", 2), Undecorated("a"), Derived("a"), Seeded("a")])
def test_a_changed_value_is_what_its_constructor_makes(one: Value) -> None:
    digest_before = one.digest
    changed = one.but(name=" bcd ")
    assert type(changed) is type(one)
    assert vars(changed) | {"digest": b""} == vars(replace(one, name=" bcd ")) | {"digest": b""}  # type: ignore[type-var]
    assert changed.digest != digest_before
    assert one.digest == digest_before


def test_checks_run_again_and_unknown_fields_are_refused() -> None:
    with pytest.raises(ValueError, match="below 0"):
        Checked("a").but(count=-1)
    assert Checked("a").but(name=" b ").name == "b"
    for item in (Plain("a"), Derived("a")):
        with pytest.raises(TypeError, match="nonesuch"):
            item.but(nonesuch=1)
    with pytest.raises((TypeError, ValueError)):
        Written("a").but(names=("b",))
