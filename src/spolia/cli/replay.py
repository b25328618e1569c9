"""A recorded step, run again with its recorded input, or with another input or other fields."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Sequence
from json import loads
from pathlib import Path
from typing import Any, get_type_hints

from spolia.cli.destinations import tell_of_models
from spolia.cli.exit_codes import Exit
from spolia.cli.results import ranking_lines
from spolia.cli.screen import Screen, visible
from spolia.cli.user_modules import own
from spolia.core.codec import IMPORTED, decode, encode
from spolia.core.environment import refuse_env
from spolia.core.function import Function
from spolia.core.operator import Operator
from spolia.core.registry import Catalogue
from spolia.errors import CodecError, QueryError, SpoliaError
from spolia.journal import Journal, ValueLost, ValueReader
from spolia.journal.run_view import RunView
from spolia.run import Run
from spolia.types import Answer, Query, Ranking


def replayed(
    screen: Screen,
    journal: Journal,
    view: RunView,
    number: int,
    given: str,
    changed: Sequence[str],
    access: Sequence[str],
    known: Sequence[str] | None,
) -> Exit:
    """Run a step of a run again, with the rights of who asks now and without a cache: models are asked."""
    detail = journal.details(view.run).get(number)
    if not any(step.span.span == number for step in view.steps):
        raise QueryError(
            f"Run {view.run} has no step {number}; it has {len(view.steps)}. `spolia trace` shows them as #1."
        )
    if detail is None or view.lost:
        raise QueryError(f"Step {number} cannot be run again. {view.lost}")
    catalogue: Any = ChainMap({}, Catalogue(own(known).operators), IMPORTED)  # type: ignore[arg-type]
    values = ValueReader(journal.database, catalogue, refuse_env)
    try:
        step = values[detail.operator]
        value = values[detail.input] if not given else _given(given, values, detail.input)
    except ValueLost as lost:
        raise QueryError(
            f"Step {number} cannot be run again: {lost} Your own operators: write --known FILE.py."
        ) from lost
    if not isinstance(step, Operator):
        raise QueryError(f"Step {number} cannot be run again: {step!r:.80} is not an operator.")
    step = _changed(step, changed, values)
    tell_of_models(screen, step)
    with Run(groups=tuple(access)) as run:
        found = step(value)
    same = None if given or changed else _is_same(found, values, detail.output)
    screen.give(run=view.run, step=number, operator=repr(step), output=_plain(found), same=same, calls=run.spent.calls)
    screen.show(*_lines(found))
    if same is not None:
        screen.say("The result is the recorded one." if same else "The result differs from the recorded one.")
    return Exit.DONE


def _changed(step: Operator[Any, Any], changed: Sequence[str], values: ValueReader) -> Operator[Any, Any]:
    """The step with other values of its fields, each written `field=value`: in JSON, or as a text."""
    for one in changed:
        name, equals, said = one.partition("=")
        if not equals:
            raise QueryError(f"--set {one!r:.80} names no value. Write --set top_k=3.")
        try:
            step = step.but(**{name: _field(step, name, said, values)})
        except (SpoliaError, ValueError, TypeError) as error:
            raise QueryError(f"--set {one!r:.80} does not fit {step.short}: {error}") from error
    return step


def _field(step: Operator[Any, Any], name: str, said: str, values: ValueReader) -> Any:
    """What is written for a field, as the field is declared; plain text is taken as it is where it is not JSON of that
    type."""
    kind = (step.keywords if isinstance(step, Function) else get_type_hints(type(step))).get(name, Any)
    try:
        plain = loads(said)
    except ValueError:
        return decode(said, kind, known=values.known, given=values)
    try:
        return decode(plain, kind, known=values.known, given=values)
    except CodecError:
        if kind is str:
            return said
        raise


def _given(text: str, values: ValueReader, hash: str) -> Any:
    """Another input: JSON, or the text of a question where the step took one."""
    try:
        if text.lower().endswith(".json"):
            return decode(loads(Path(text).read_text("utf-8")), Any, known=values.known, given=values)
        before = values[hash]
        if isinstance(before, Query):
            return Query(text) if not text.lstrip().startswith("{") else decode(loads(text), Any, known=values.known)
        return text if isinstance(before, str) else decode(loads(text), Any, known=values.known, given=values)
    except (ValueError, CodecError) as error:
        raise QueryError(
            f"--input {text!r:.80} cannot be read: {error}. Write JSON like the `input` of `spolia trace --json`."
        ) from error


def _is_same(found: Any, values: ValueReader, hash: str) -> bool | None:
    try:
        return bool(found == values[hash])
    except ValueLost:
        return None


def _plain(value: Any) -> Any:
    try:
        return encode(value)
    except CodecError:
        return repr(value)


def _lines(value: Any) -> list[Any]:
    if isinstance(value, Ranking):
        return list(ranking_lines(value))
    if isinstance(value, (tuple, list)) and value:
        heads = [getattr(one, "source", "") or type(one).__name__ for one in value]
        return [line for head, one in zip(heads, value, strict=True) for line in (visible(head), *_lines(one))]
    return [visible(value.text if isinstance(value, (Answer, Query)) else repr(value))]
