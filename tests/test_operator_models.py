"""What an operator needs of models, and whether it waits, follows from its fields."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from spolia.core.check import check
from spolia.core.operator import Operator
from spolia.models.http.chat import ChatModel
from spolia.models.local.language_model import LocalModel
from spolia.models.onnx.minilm import MiniLM
from spolia.models.prompting.stand_in_models import ScriptedModel
from spolia.models.protocols import Embedder, ForetellsTokens, LanguageModel, ScoresContinuations, StatesLogprobs
from spolia.testing import HashingEmbedder
from spolia.types import Query, Value
from tests.cases import check_each

CHAT = ChatModel("any", "http://127.0.0.1:1/v1")


@dataclass(frozen=True)
class Mine(Operator[Query, Query]):
    """As a user writes it: fields, and nothing about what they need."""

    llm: LanguageModel
    judge: StatesLogprobs | None = None
    scorer: ScoresContinuations | None = None
    router: ForetellsTokens | None = None
    voters: tuple[LanguageModel, ...] = ()
    top_k: int = 3

    def apply(self, value: Query, /) -> Query:
        return value


@dataclass(frozen=True)
class Embeds(Operator[Query, Query]):
    embedder: Embedder

    def apply(self, value: Query, /) -> Query:
        return value


@dataclass(frozen=True)
class Server(Value):
    """A server of the user's own, which says nothing about waiting."""

    scoped = False

    def fingerprint(self) -> str:
        return "server"


@dataclass(frozen=True)
class Asks(Operator[Query, Query]):
    server: Server = Server()

    def apply(self, value: Query, /) -> Query:
        return value


def test_needs_are_those_of_the_protocols_that_the_fields_declare() -> None:
    assert Mine.needs == {
        "llm": {"chat"},
        "judge": {"chat", "logprobs"},
        "scorer": {"scores"},
        "router": {"next_tokens"},
        "voters": {"chat"},
    }
    assert Embeds.needs == Asks.needs == {}


@pytest.mark.parametrize(
    ("op", "lacks"),
    [
        (Mine(CHAT), ""),
        (Mine(CHAT, judge=ScriptedModel(("x",))), "judge: Mine needs logprobs"),
        (Mine(CHAT, voters=(CHAT, CHAT.but(capabilities=frozenset()))), "voters: Mine needs chat"),
    ],
)
def test_check_finds_a_model_that_lacks_what_a_field_declares(op: Mine, lacks: str) -> None:
    problems = [str(problem) for problem in check(op).problems]
    assert len(problems) == bool(lacks)
    assert all(lacks in problem for problem in problems)


@check_each(
    ("op", "waits"),
    [
        (Mine(CHAT), True),
        (Mine(LocalModel("a")), True),
        (Asks(), True),
        (Asks() >> Embeds(HashingEmbedder()), True),
        (Embeds(MiniLM()), False),
        (Embeds(HashingEmbedder()), False),
    ],
)
def test_a_step_waits_when_a_model_or_server_in_its_fields_does(op: Operator[Any, Any], waits: bool) -> None:
    assert op.waiting is waits


class Local:
    """A model of the user's own, without a content hash."""

    name, capabilities, scoped = "local", frozenset({"chat"}), False

    def fingerprint(self) -> str:
        return "local"


@dataclass(frozen=True)
class Holds(Operator[Query, Query]):
    models: Any

    def apply(self, value: Query, /) -> Query:
        return value


def test_a_model_without_a_content_hash_waits_and_is_run_wherever_it_stands_in_a_field() -> None:
    for models in (Local(), [Local()], {"one": Local()}):
        assert Holds(models).waiting
        assert Holds(models).batch([Query("?")]) == [Query("?")]
