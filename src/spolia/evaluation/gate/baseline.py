"""What a flow made of questions once, as a file that is kept beside the code and compared with later."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass, field
from pathlib import Path
from typing import Any

from spolia.errors import DataError
from spolia.evaluation.gate.asked import Asked, short
from spolia.evaluation.gate.signature import Known, Signature
from spolia.evaluation.identity import code_of, reads
from spolia.evaluation.measures.measure import SetMeasure
from spolia.types import Item, Value

FORM = 3


@dataclass(frozen=True)
class Baseline(Value):
    """What one flow made of questions, and all that this depends on.

    Args:
        data: what the questions are called.
        flow: what the flow is called.
        measures: by measure, a hash of what it computes.
        signature: what its results depend on.
        documents: those that are gold or were found, by name.
        questions: what was made of each.
        command: how the command line was asked, so that it need not be said again: a text, or several, by option.
    """

    data: str
    flow: str
    measures: Mapping[str, str]
    signature: Signature
    documents: Mapping[str, Known]
    questions: tuple[Asked, ...]
    command: Mapping[str, str | list[str]] = field(default_factory=dict)

    @property
    def by_item(self) -> dict[str, Asked]:
        """What was made of each question, by its id."""
        return {one.item: one for one in self.questions}

    def among(self, items: Iterable[Item]) -> list[Item]:
        """Of some questions those that the baseline has, in their order."""
        known = self.by_item
        return [item for item in items if item.id in known]

    def write(self, path: str | Path) -> None:
        """Write it as JSON, a line for each document and question, so that a version control shows what differs."""
        Path(path).write_text(self.text(), "utf-8", errors="backslashreplace")

    def text(self) -> str:
        """How it is written."""
        plain = {
            "spolia_baseline": FORM,
            "data": self.data,
            "flow": self.flow,
            "command": dict(self.command),
            "measures": dict(self.measures),
            "signature": {kind: dict(one) for kind, one in self.signature.items()},
            "documents": {name: astuple(self.documents[name]) for name in sorted(self.documents)},
            "questions": {one.item: one.plain() for one in self.questions},
        }
        return "{\n" + ",\n".join(f"{json.dumps(name)}: {_block(value)}" for name, value in plain.items()) + "\n}\n"

    @classmethod
    def read(cls, path: str | Path) -> Baseline:
        """A baseline from its file.

        Raises:
            DataError: there is none, or it is of another form, and of which.
        """
        try:
            plain = json.loads(Path(path).read_text("utf-8"))
            form = plain["spolia_baseline"]
        except FileNotFoundError as error:
            raise DataError(f"There is no baseline {path}. Write one: {_writing(path)}") from error
        except OSError as error:
            raise DataError(f"{path} cannot be read: {error.strerror or error}. Write one: {_writing(path)}") from error
        except (ValueError, RecursionError) as error:
            where = f" after line {error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
            raise DataError(
                f"{path} is no baseline: it is no JSON{where}, cut short perhaps, or with the marks of a merge in it. "
                f"Write one: {_writing(path)}"
            ) from error
        except (LookupError, TypeError) as error:
            raise DataError(f"{path} is JSON, but no baseline. Write one: {_writing(path)}") from error
        if form != FORM:
            newer = "Upgrade: pip install -U spolia, or write" if isinstance(form, int) and form > FORM else "Write"
            raise DataError(
                f"{path} is a baseline of form {form!r}; this version knows {FORM}. {newer} a new one: {_writing(path)}"
            )
        return _baseline(path, plain)


def measured_by(measures: Iterable[SetMeasure]) -> dict[str, str]:
    """Measures as they are written, each with a hash of its fields, its code, its models and its prompt files."""
    return {str(one): short((code_of(one), reads(one), [repr(one)])) for one in measures}


def _baseline(path: str | Path, plain: Mapping[str, Any]) -> Baseline:
    try:
        return Baseline(
            plain["data"],
            plain["flow"],
            dict(plain["measures"]),
            plain["signature"],
            {
                name: Known(content, tuple((group, cut, nodes) for group, cut, nodes in cuts))
                for name, (content, cuts) in plain["documents"].items()
            },
            tuple(Asked.read(id, one) for id, one in plain["questions"].items()),
            dict(plain.get("command", {})),
        )
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        lacks = f"lacks {error}" if isinstance(error, KeyError) else "has something else where it has its entries"
        raise DataError(f"{path} is a damaged baseline: it {lacks}. Write a new one: {_writing(path)}") from error


def _writing(path: str | Path) -> str:
    return f"spolia gate FLOW --data DIR --baseline {path} --write"


def _block(value: object) -> str:
    """One entry a line."""
    if not isinstance(value, Mapping) or not value:
        return _line(value)
    return "{\n" + ",\n".join(f" {_line(name)}: {_line(one)}" for name, one in value.items()) + "\n}"


def _line(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
