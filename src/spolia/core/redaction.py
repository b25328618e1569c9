"""What must not be kept: found by patterns, or by a model of your own, and hidden."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from spolia.core.patterns import pattern
from spolia.errors import QueryError
from spolia.types import Value

Finding = tuple[int, int, str]
"""Start, end and kind of a place in a text."""
MASK = "█"
KINDS = {
    "email": pattern(r"(?<![\w.+-])[\w.+-]{1,64}@(?:[\w-]{1,63}\.){1,8}[a-zA-Z]{2,24}(?![\w-])"),
    "phone": pattern(r"(?<![\w+.,/-])(?<!\d )(?:\+|00)\d{1,3}(?:[ ./-]?\(?\d{1,5}\)?){2,6}(?![\w-])"),
    "iban": pattern(r"(?<!\w)[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?(?!\w)"),
    "card": pattern(r"(?<![\w.,-])\d(?:[ -]?\d){12,18}(?![\w-])"),
    "ip": pattern(r"(?<![\w.])(?:(?:25[0-5]|2[0-4]\d|1?\d?\d)\.){3}(?:25[0-5]|2[0-4]\d|1?\d?\d)(?![\w.])"),
    "secret": pattern(
        r"(?<![\w-])(?:sk-[\w-]{16,}|gh[pousr]_\w{20,}|AKIA[A-Z0-9]{16}|xox[abprs]-[\w-]{10,}|eyJ[\w-]{8,}\.eyJ[\w-]{8,}"
        r"\.[\w-]+)(?![\w-])"
    ),
}


@runtime_checkable
class Redactor(Protocol):
    """Finds what is to be hidden: patterns, or a model that marks names and addresses.

    Of a frozen dataclass the fields are part of how documents are read: with others, the next sync reads them again.
    """

    def found(self, text: str, /) -> Iterable[Finding]:
        """The places, in any order; they may overlap."""


@dataclass(frozen=True)
class Patterns(Value):
    """Finds addresses and numbers by regular expressions; IBANs and card numbers also by their check digits.

    Args:
        kinds: of `email`, `phone` (international form), `iban`, `card`, `ip`, `secret` (keys of APIs, tokens); empty
            for all.

    Raises:
        QueryError: an unknown kind.

    >>> labelled("Ask ann@example.org, +44 20 7946 0958 or GB82 WEST 1234 5698 7654 32.", Patterns())
    'Ask [EMAIL], [PHONE] or [IBAN].'
    >>> masked("Pay with 4111 1111 1111 1111, order 4111 1111 1111 1112.", Patterns(("card",)))
    'Pay with ███████████████████, order 4111 1111 1111 1112.'
    """

    kinds: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if unknown := [one for one in self.kinds if one not in KINDS]:
            raise QueryError(f"Unknown kind to redact: {unknown[0]!r}. Write one of: {', '.join(KINDS)}.")

    def found(self, text: str, /) -> Iterator[Finding]:
        for kind in self.kinds or KINDS:
            for one in KINDS[kind].finditer(text):
                if (check := CHECKS.get(kind)) is None or check("".join(filter(str.isalnum, one[0]))):
                    yield one.start(), one.end(), kind


@dataclass(frozen=True)
class Redactors(Value):
    """Finds what any of several find."""

    each: tuple[Redactor, ...]

    def found(self, text: str, /) -> Iterator[Finding]:
        for one in self.each:
            yield from one.found(text)


def _is_card(digits: str) -> bool:
    """Luhn's check."""
    numbers = map(int, reversed(digits))
    return sum(sum(divmod(2 * one, 10)) if at % 2 else one for at, one in enumerate(numbers)) % 10 == 0


def _is_iban(text: str) -> bool:
    """The remainder by 97 of ISO 7064."""
    return int("".join(str(int(one, 36)) for one in text[4:] + text[:4])) % 97 == 1


CHECKS = {"card": _is_card, "iban": _is_iban}


def _places(text: str, redactor: Redactor) -> Iterator[Finding]:
    """The places in the order of the text; of two that overlap the part of the second after the first."""
    end = 0
    for start, stop, kind in sorted(redactor.found(text)):
        if (stop := min(stop, len(text))) > max(start, end):
            yield max(start, end), stop, kind
            end = stop


def masked(text: str, redactor: Redactor) -> str:
    """The text with each place covered, as long as it was: all places in it stay where they are."""
    parts, end = [], 0
    for start, stop, _ in _places(text, redactor):
        parts += [text[end:start], "".join("\n" if one == "\n" else MASK for one in text[start:stop])]
        end = stop
    return "".join([*parts, text[end:]])


def labelled(text: str, redactor: Redactor) -> str:
    """The text with the kind of each place instead."""
    parts, end = [], 0
    for start, stop, kind in _places(text, redactor):
        parts += [text[end:start], f"[{kind.upper()}]"]
        end = stop
    return "".join([*parts, text[end:]])
