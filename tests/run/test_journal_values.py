"""What the journal keeps of steps beside their spans: operator, input, output and what models were sent."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spolia import step
from spolia.core.operator import Operator
from spolia.core.redaction import Patterns
from spolia.journal import Exchange, Journal, Runs, TraceSpan, ValueLost, ValueReader
from spolia.journal.database import VALUES
from spolia.journal.values import make_redaction
from spolia.models import Lines, Role, ScriptedModel
from spolia.models.prompting.role import Ask, Brief
from spolia.run import Run
from spolia.types import Hit, Node, Query, Ranking, Usage, Value

NODES = [Node(f"n{i}", f"text {i}", meta=(("year", 2000 + i),)) for i in range(4)]


@dataclass(frozen=True)
class FirstOfAll(Operator[Ranking, Ranking]):
    top_k: int = 2

    def apply(self, value: Ranking, /) -> Ranking:
        return value.but(hits=value.hits[: self.top_k])


@dataclass(frozen=True)
class AppendsOne(Operator[list[int], list[int]]):
    def apply(self, value: list[int], /) -> list[int]:
        value.append(1)
        return value


def ranking(*numbers: int, text: str = "why?") -> Ranking:
    return Ranking(Query(text), tuple(Hit(NODES[n], 1 / (n + 1), found=tuple(NODES[:n:2])) for n in numbers), "bm25")


def trace_flow(journal: Journal, flow: Operator[Any, Any], value: Any, **run: Any) -> list[TraceSpan]:
    with Run(journal=journal, **run) as current_run:
        flow(value)
    assert journal.flush()
    assert journal.database.problem == ""
    return journal.spans(current_run.id)


def read_values(journal: Journal, span: TraceSpan) -> tuple[Any, Any, Any]:
    values, detail = ValueReader(journal.database), journal.details(span.run)[span.span]
    return values[detail.operator], values[detail.input], values[detail.output]


def count(runs: Runs, table: str) -> int:
    return int(runs.database.read(f"SELECT count(*) FROM {table}")[0][0])


def test_a_span_knows_its_operator_its_input_and_its_output(tmp_path: Path) -> None:
    with Runs(tmp_path / "runs.db", values=True) as runs:
        whole, first, second = trace_flow(runs.journal, FirstOfAll(3) >> FirstOfAll(1), ranking(0, 1, 2, 3))
        assert read_values(runs.journal, whole) == (FirstOfAll(3) >> FirstOfAll(1), ranking(0, 1, 2, 3), ranking(0))
        assert read_values(runs.journal, first) == (FirstOfAll(3), ranking(0, 1, 2, 3), ranking(0, 1, 2))
        assert read_values(runs.journal, second) == (FirstOfAll(1), ranking(0, 1, 2), ranking(0))


def test_a_value_is_stored_once_however_often_it_passes(tmp_path: Path) -> None:
    with Runs(tmp_path / "runs.db", values=True) as runs:
        for _ in range(3):
            spans = trace_flow(runs.journal, FirstOfAll(2) >> FirstOfAll(1), ranking(0, 1, 2))
        details = runs.journal.details(spans[0].run)
        assert details[1].input == details[2].input
        assert details[2].output == details[3].input
        assert details[1].output == details[3].output
        # three operators, three rankings, their query, and the nodes that were shown
        assert count(runs, "trace_values") == 3 + 3 + 1 + 3
        count_before = count(runs, "trace_values")
    with Runs(tmp_path / "runs.db", values=True) as second_runs:  # nor by another process
        trace_flow(second_runs.journal, FirstOfAll(2) >> FirstOfAll(1), ranking(0, 1, 2))
        assert count(second_runs, "trace_values") == count_before


def test_nothing_is_kept_of_values_unless_it_is_switched_on(tmp_path: Path) -> None:
    with Runs(tmp_path / "runs.db") as runs:
        (span,) = trace_flow(runs.journal, FirstOfAll(), ranking(0))
        assert runs.journal.details(span.run) == {}


def test_an_input_is_kept_as_the_step_was_given_it(tmp_path: Path) -> None:
    with Runs(tmp_path / "runs.db", values=True) as runs:
        _, first, second = trace_flow(runs.journal, AppendsOne() >> AppendsOne(), [0])
        assert read_values(runs.journal, first)[1:] == ([0], [0, 1])
        assert read_values(runs.journal, second)[1:] == ([0, 1], [0, 1, 1])


def test_rows_of_a_batch_have_their_own_values(tmp_path: Path) -> None:
    @dataclass(frozen=True)
    class DoublesRows(Operator[int, int]):
        def apply(self, value: int, /) -> int:
            return 2 * value

        def apply_batch(self, values: Any, /) -> Any:
            return [2 * value for value in values]

    with Runs(tmp_path / "runs.db", values=True) as runs:
        with Run(journal=runs.journal) as run:
            DoublesRows().batch([1, 2])
        runs.journal.flush()
        values, details = ValueReader(runs.database), runs.journal.details(run.id)
        assert [(values[detail.input], values[detail.output]) for detail in details.values()] == [(1, 2), (2, 4)]


def test_a_failed_step_has_an_input_and_no_output(tmp_path: Path) -> None:
    @dataclass(frozen=True)
    class AlwaysFails(Operator[int, int]):
        def apply(self, value: int, /) -> int:
            raise ValueError("no")

    with Runs(tmp_path / "runs.db", values=True) as runs:
        with Run(journal=runs.journal) as run, pytest.raises(ValueError, match="no"):
            AlwaysFails()(7)
        runs.journal.flush()
        (detail,) = runs.journal.details(run.id).values()
        assert ValueReader(runs.database)[detail.input] == 7
        with pytest.raises(ValueLost, match="not kept"):
            ValueReader(runs.database)[detail.output]


def steps_and_input(text: str) -> tuple[Ask, Brief]:
    role = Role("Name parts.\n<question>{{question}}</question>", Lines())
    return Ask(ScriptedModel(("one\ntwo",)), role), Brief.from_texts(question=text)


def test_what_a_model_was_sent_and_replied_is_kept_and_found_again_for_a_cached_result(tmp_path: Path) -> None:
    ask, brief = steps_and_input("Who?")
    with Runs(tmp_path / "runs.db", values=True) as runs:
        (first,) = trace_flow(runs.journal, ask, brief, cache=runs.cache)
        (second,) = trace_flow(runs.journal, ask, brief, cache=runs.cache)
        assert second.cached
        detail = runs.journal.details(first.run)[1]
        (exchange,) = ValueReader(runs.database)[detail.exchanges]
        assert isinstance(exchange, Exchange)
        assert "<question>Who?</question>" in exchange.prompt.messages[-1].content
        assert exchange.reply.text == "one\ntwo"
        second_detail = runs.journal.details(second.run)[1]
        assert second_detail.exchanges == ""
        assert runs.journal.find_exchanges(second_detail.operator, second_detail.input, frozenset()) == detail.exchanges


def test_what_somebody_was_sent_is_not_found_for_others(tmp_path: Path) -> None:
    ask, brief = steps_and_input("Who?")
    with Runs(tmp_path / "runs.db", values=True) as runs:
        (span,) = trace_flow(runs.journal, ask, brief, principal="ann", groups=("staff",))
        detail = runs.journal.details(span.run)[1]
        assert detail.principals == ("ann", "staff")
        for principals, is_shown in (((), False), (("ann",), False), (("ann", "staff", "bob"), True)):
            exchanges = runs.journal.find_exchanges(detail.operator, detail.input, frozenset(principals))
            assert bool(exchanges) is is_shown


def read_database(path: Path) -> bytes:
    return b"".join(file.read_bytes() for file in path.parent.glob(f"{path.name}*"))


def test_secrets_of_the_environment_are_never_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", 'sk-1234"5678')
    monkeypatch.setenv("DB_PASSWORD", "hunter2-hunter2")

    @step
    def leak(query: Query) -> Query:
        raise ValueError('refused: sk-1234"5678')

    with Runs(tmp_path / "runs.db", values=True) as runs:
        trace_flow(runs.journal, FirstOfAll(), ranking(0, text='key sk-1234"5678 and hunter2-hunter2'))
        with Run(journal=runs.journal), pytest.raises(ValueError, match="refused"):
            leak(Query("hunter2-hunter2"))
    raw = read_database(tmp_path / "runs.db")
    assert b"[OPENAI_API_KEY]" in raw
    assert b"[DB_PASSWORD]" in raw
    assert b"5678" not in raw
    assert b"hunter2" not in raw


def test_texts_are_redacted_before_they_are_written(tmp_path: Path) -> None:
    with Runs(tmp_path / "runs.db", values=True, redact=lambda text: text.replace("Olsen", "[name]")) as runs:
        (span,) = trace_flow(runs.journal, FirstOfAll(), ranking(0, text="Who is Olsen?"))
        assert read_values(runs.journal, span)[1].query.text == "Who is [name]?"
    assert b"Olsen" not in read_database(tmp_path / "runs.db")


def test_what_begins_a_line_is_redacted_in_traces_values_and_cached_results(tmp_path: Path) -> None:
    secrets = [
        "4111 1111 1111 1111",
        "192.168.17.23",
        "GB82 WEST 1234 5698 7654 32",
        "+44 20 7946 0958",
        f"sk-{'a1' * 9}",
    ]
    value_by_key = {f"{blank}{secret}": [{"said": f"{blank}{secret}"}] for secret in secrets for blank in "\n\t"} | {
        "n": 4111111111111111
    }
    with Runs(tmp_path / "runs.db", values=True, redact=make_redaction(Patterns())) as runs:
        runs.cache.save(b"key", value_by_key, Usage())
        trace_flow(runs.journal, step(lambda value: value), value_by_key)
        trace_flow(runs.journal, step(lambda value: Query("\n".join(value))), value_by_key)
        (span,) = trace_flow(runs.journal, step(lambda value: object()), {"n": 4111111111111111})
        assert ValueReader(runs.database)[runs.journal.details(span.run)[span.span].input] == {"n": "[CARD]"}
    raw = read_database(tmp_path / "runs.db")
    assert b"[IBAN]" in raw
    assert not [secret for secret in [*secrets, "4111111111111111"] if secret.encode() in raw]


def test_of_a_long_value_the_beginning_is_kept_and_the_rest_is_said_to_be_lost(tmp_path: Path) -> None:
    with Runs(tmp_path / "runs.db", values=True) as runs:
        runs.journal.max_value_bytes = 1000
        (span,) = trace_flow(runs.journal, FirstOfAll(), ranking(0, text="long " * 300))
        values, detail = ValueReader(runs.database), runs.journal.details(span.run)[1]
        query = values.read_plain(detail.input)["Ranking"]["query"]["use"]
        with pytest.raises(ValueLost, match="1,000 are kept") as lost:
            values[query]
        assert "long long" in lost.value.words
        with pytest.raises(ValueLost):
            values[detail.input]


def test_a_value_without_a_plain_form_is_kept_in_words(tmp_path: Path) -> None:
    with Runs(tmp_path / "runs.db", values=True) as runs:
        with Run(journal=runs.journal) as run:
            step(lambda value: 3)({object})
        runs.journal.flush()
        (detail,) = runs.journal.details(run.id).values()
        with pytest.raises(ValueLost, match="no plain form") as lost:
            ValueReader(runs.database)[detail.input]
        assert "class 'object'" in lost.value.words
        assert runs.database.dropped == 0


def test_values_that_were_written_first_are_dropped_when_there_are_too_many(tmp_path: Path) -> None:
    with Runs(tmp_path / "runs.db", values=True) as runs:
        runs.journal.max_bytes = 20_000
        for number in range(40):
            (span,) = trace_flow(runs.journal, FirstOfAll(), ranking(0, text=f"{number} " * 500))
        ((size,),) = runs.database.read("SELECT sum(size) FROM trace_values")
        assert size <= 20_000 * 9 / 8 + 2000
        assert read_values(runs.journal, span)[1].query.text.startswith("39 ")


def test_details_go_with_their_runs(tmp_path: Path) -> None:
    with Runs(tmp_path / "runs.db", values=True) as runs:
        for _ in range(3):
            (span,) = trace_flow(runs.journal, FirstOfAll(), ranking(0))
        runs.journal.prune(1)
        assert runs.journal.flush()
        assert (count(runs, "trace_details"), count(runs, "trace_runs")) == (1, 1)
        assert runs.journal.details(span.run)


def test_a_file_of_before_is_read_and_gets_the_tables_with_the_first_value(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    with Runs(path) as runs:
        trace_flow(runs.journal, FirstOfAll(), ranking(0))
        run = runs.journal.runs()[0][0]
    assert not sqlite3.connect(path).execute("SELECT 1 FROM sqlite_master WHERE name LIKE 'trace%'").fetchall()
    with Runs(path, values=True) as second_runs:
        assert second_runs.journal.details(run) == {}
        assert second_runs.journal.find_exchanges("a", "b", frozenset()) == ""
        (span,) = trace_flow(second_runs.journal, FirstOfAll(), ranking(1))
        assert read_values(second_runs.journal, span)[1] == ranking(1)
        second_runs.journal.prune(0)
    assert VALUES.count("IF NOT EXISTS") == 3


def test_a_value_that_was_changed_in_the_file_is_not_taken(tmp_path: Path) -> None:
    with Runs(tmp_path / "runs.db", values=True) as runs:
        (span,) = trace_flow(runs.journal, FirstOfAll(), ranking(0))
        runs.database.write("UPDATE trace_values SET value = ?", lambda: [(b'{"Query":{"text":"other"}}',)])
        runs.journal.flush()
        with pytest.raises(ValueLost, match="not as it was written"):
            ValueReader(runs.database)[runs.journal.details(span.run)[1].input]


@dataclass(frozen=True)
class LeftAndRight(Value):
    left: Any
    right: tuple[Ranking, ...] = ()


TEXTS = st.text(max_size=20)
HITS = st.builds(Hit, st.builds(Node, TEXTS, TEXTS), st.floats(allow_nan=False, allow_infinity=False))
RANKINGS = st.builds(Ranking, st.builds(Query, TEXTS), st.lists(HITS, max_size=3).map(tuple), TEXTS)
SCALARS = TEXTS | st.integers() | st.booleans() | st.none() | st.floats(allow_nan=False, allow_infinity=False)
VALUES_OF_STEPS = (
    SCALARS | RANKINGS | st.tuples(SCALARS, RANKINGS) | st.builds(LeftAndRight, SCALARS, st.tuples(RANKINGS))
)


@dataclass(frozen=True)
class GivesBack(Operator[Any, Any]):
    def apply(self, value: Any, /) -> Any:
        return value


@pytest.mark.slow
@given(value=VALUES_OF_STEPS)
def test_what_is_kept_reads_back_as_what_was_given(value: Any, tmp_path_factory: pytest.TempPathFactory) -> None:
    with Runs(tmp_path_factory.mktemp("runs") / "runs.db", values=True) as runs:
        (span,) = trace_flow(runs.journal, GivesBack(), value)
        assert read_values(runs.journal, span) == (GivesBack(), value, value)
