"""Redaction of texts: private data, found by patterns or by a model of your own, and hidden."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable
from warnings import warn

from spolia.core.patterns import pattern
from spolia.errors import QueryError
from spolia.types import Value

Finding = tuple[int, int, str]
"""Start, end and kind of a place in a text."""
MASK = "█"
KINDS = {  # Repetitions have bounds (local part 64, label 63: RFC 5321 and 1035), so that a search stays linear.
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
    """Finder of private data: patterns, or a model that marks names and addresses.

    Of a frozen dataclass the fields are part of how documents are read: with others, the next sync reads them again.
    """

    def find_sensitive(self, text: str, /) -> Iterable[Finding]:
        """Return the places to hide, in any order; they may overlap."""


@dataclass(frozen=True)
class Patterns(Value):
    """Finder of addresses and numbers by regular expressions; IBANs and card numbers also by their check digits.

    Args:
        kinds: of `email`, `phone` (international form), `iban`, `card`, `ip`, `secret` (keys of APIs, tokens); empty
            for all.

    Raises:
        QueryError: an unknown kind.

    >>> label_places("Ask ann@example.org, +44 20 7946 0958 or GB82 WEST 1234 5698 7654 32.", Patterns())
    'Ask [EMAIL], [PHONE] or [IBAN].'
    >>> mask_places("Pay with 4111 1111 1111 1111, order 4111 1111 1111 1112.", Patterns(("card",)))
    'Pay with ███████████████████, order 4111 1111 1111 1112.'
    """

    kinds: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if unknown := [kind for kind in self.kinds if kind not in KINDS]:
            raise QueryError(f"Unknown kind to redact: {unknown[0]!r}. Write one of: {', '.join(KINDS)}.")

    def find_sensitive(self, text: str, /) -> Iterator[Finding]:
        for kind in self.kinds or KINDS:
            for match in KINDS[kind].finditer(text):
                if (check := CHECKS.get(kind)) is None or check("".join(filter(str.isalnum, match[0]))):
                    yield match.start(), match.end(), kind


@dataclass(frozen=True)
class Redactors(Value):
    """Several redactors, which hide what any of them finds."""

    each: tuple[Redactor, ...]

    def find_sensitive(self, text: str, /) -> Iterator[Finding]:
        for redactor in self.each:
            yield from _find_sensitive(text, redactor)


def _is_card(digits: str) -> bool:
    """Check digits by Luhn's formula."""
    numbers = map(int, reversed(digits))
    return sum(sum(divmod(2 * digit, 10)) if index % 2 else digit for index, digit in enumerate(numbers)) % 10 == 0


def _is_iban(text: str) -> bool:
    """Check the remainder by 97 of ISO 7064."""
    return int("".join(str(int(character, 36)) for character in text[4:] + text[:4])) % 97 == 1


CHECKS = {"card": _is_card, "iban": _is_iban}


def _find_sensitive(text: str, redactor: Any) -> Iterable[Finding]:
    """Ask a redactor, also one that has the method by its former name `found`."""
    if hasattr(redactor, "find_sensitive") or not hasattr(redactor, "found"):
        return redactor.find_sensitive(text)  # type: ignore[no-any-return]
    warn(
        f"{type(redactor).__name__}.found is find_sensitive now. The former name goes with the next minor version.",
        DeprecationWarning,
        stacklevel=2,
    )
    return redactor.found(text)  # type: ignore[no-any-return]


def _find_places(text: str, redactor: Redactor) -> Iterator[Finding]:
    """Yield the places in the order of the text; of two that overlap the rest of the second after the first."""
    end = 0
    for start, stop, kind in sorted(_find_sensitive(text, redactor)):
        if (stop := min(stop, len(text))) > max(start, end):  # a redactor of your own may point behind the end
            yield max(start, end), stop, kind
            end = stop


def mask_places(text: str, redactor: Redactor) -> str:
    """Cover each place with a text of the same length, so that offsets do not change."""
    parts, end = [], 0
    for start, stop, _ in _find_places(text, redactor):
        parts += [text[end:start], "".join("\n" if character == "\n" else MASK for character in text[start:stop])]
        end = stop
    return "".join([*parts, text[end:]])


def label_places(text: str, redactor: Redactor) -> str:
    """Replace each place by its kind."""
    parts, end = [], 0
    for start, stop, kind in _find_places(text, redactor):
        parts += [text[end:start], f"[{kind.upper()}]"]
        end = stop
    return "".join([*parts, text[end:]])
