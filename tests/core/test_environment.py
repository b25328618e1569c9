"""A flow file, a source file and a store read only those environment variables that the caller allows."""

from __future__ import annotations

from pathlib import Path

import pytest

from spolia.core.environment import allow_env, env_of, refuse_env
from spolia.databases import PostgresDatabase
from spolia.errors import FlowFileError, SourceError, StoreError, VariableRefused
from spolia.flow_files import dump, load
from spolia.generation import Reader
from spolia.indexing.sources.remote_files import RemoteFiles
from spolia.indexing.sources.sql import SQLRows
from spolia.indexing.sources.web import WebPages
from spolia.models.http.chat import ChatModel
from spolia.stores.adapters.qdrant import Qdrant
from spolia.stores.corpus import Corpus
from spolia.stores.manifest import refuse_stored

URL = "http://203.0.113.9/v1"


def flow(fields: str) -> str:
    return f"Reader:\n  llm:\n    ChatModel: {{model: m, base_url: '{URL}'{fields}}}\n"


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "PGPASSWORD", "SPOLIA_ALLOW_ENV", "QDRANT_API_KEY"):
        monkeypatch.delenv(name, raising=False)


def test_a_flow_file_that_names_a_variable_is_refused_with_its_line_and_what_to_write() -> None:
    with pytest.raises(FlowFileError) as error:
        load(flow(", api_key_env: AWS_SECRET"))
    message = str(error.value)
    assert message.startswith("flow, line 3")
    assert URL in message
    assert "env=('AWS_SECRET',)" in message
    assert "--allow-env AWS_SECRET" in message


def test_what_the_caller_allows_is_loaded_by_each_of_the_ways_to_allow_it(monkeypatch: pytest.MonkeyPatch) -> None:
    text = flow(", api_key_env: MY_KEY")
    reader = Reader(ChatModel("m", URL, api_key_env="MY_KEY"))
    assert load(text, env=("MY_KEY",)) == reader
    with allow_env("MY_KEY"):
        assert load(text) == reader
    with pytest.raises(FlowFileError):
        load(text)
    monkeypatch.setenv("SPOLIA_ALLOW_ENV", "OTHER, MY_KEY")
    assert load(text) == reader


def test_allowing_one_variable_allows_no_other() -> None:
    with allow_env("MY_KEY"), pytest.raises(FlowFileError, match="OTHER_KEY"):
        load(flow(", api_key_env: OTHER_KEY"), env=("THIRD",))


def test_a_variable_may_be_allowed_to_one_address_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-0123456789")
    own, other_model = (ChatModel("m", f"http://{host}/v1") for host in ("own", "other"))
    with allow_env("OPENAI_API_KEY", address="http://own/v1"):
        refuse_env(own)
        with pytest.raises(VariableRefused, match="http://other/v1"):
            refuse_env(other_model)
    with pytest.raises(VariableRefused):
        refuse_env(own)


def test_a_value_with_several_addresses_reads_only_what_all_of_them_are_allowed() -> None:
    headers = (("Authorization", "Bearer ${OPENAI_API_KEY}"),)
    with allow_env("OPENAI_API_KEY", address="http://own/v1"):
        refuse_env(WebPages(("http://own/v1",), headers=headers))
        for pages in (
            WebPages(("http://own/v1", "http://other/"), headers=headers),
            WebPages(("http://own/v1",), sitemap="http://other/", headers=headers),
        ):
            with pytest.raises(VariableRefused, match="http://own/v1 and http://other/"):
                refuse_env(pages)


def test_a_variable_of_the_class_needs_to_be_allowed_once_it_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    assert load(flow("")) == Reader(ChatModel("m", URL))
    monkeypatch.setenv("OPENAI_API_KEY", "sk-1")
    with pytest.raises(FlowFileError, match=r"OPENAI_API_KEY, whose value goes to http://203.*write api_key_env: ''"):
        load(flow(""))
    assert load(flow(""), env=("OPENAI_API_KEY",)) == Reader(ChatModel("m", URL))
    assert load(flow(", api_key_env: ''")) == Reader(ChatModel("m", URL, api_key_env=""))


def test_what_the_caller_gives_by_name_may_read_what_it_wants() -> None:
    mine = ChatModel("m", URL, api_key_env="MY_KEY")
    reader = Reader(mine)
    assert load(dump(reader, {"llm": mine}), {"llm": mine}) == reader


def test_a_part_of_a_value_that_is_written_is_looked_at_too() -> None:
    group = "BM25: {group: {corpus: {path: 'postgresql://evil.example/x?password_env=AWS_SECRET'}, name: chunk}}"
    with pytest.raises(FlowFileError, match="AWS_SECRET"):
        load(group)


def test_a_database_address_reads_the_variable_that_it_names_or_that_of_its_library(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert env_of(Corpus("postgresql://a@h/d?password_env=X")) == {"X": True}
    assert env_of(PostgresDatabase("postgresql://a@h/d")) == {"PGPASSWORD": False, "PGSERVICE": False}
    assert env_of(Corpus("postgresql://h/d?service=theirs"))["PGSERVICE"]
    assert env_of(Corpus("postgresql://h/d?passfile=a"))["PGPASSFILE"]
    assert env_of(Corpus("postgresql://h/d?hostaddr=203.0.113.9"))["PGPASSFILE"]
    assert env_of(SQLRows("a", "postgresql+psycopg://h/d?hostaddr=203.0.113.9", "t", "id", "body"))["PGPASSFILE"]
    assert env_of(SQLRows("a", "postgresql+psycopg://ann@h/d", "t", "id", "body")) == {"PGPASSWORD": False}
    assert env_of(SQLRows("a", "mysql+pymysql://h/d?read_default_file=a", "t", "id", "body"))["MYSQL_PWD"]
    assert env_of(SQLRows("a", "sqlite:///a.db", "t", "id", "body")) == {}
    assert "AWS_SESSION_TOKEN" in env_of(RemoteFiles("s3://docs", (("endpoint_url", "http://h"),)))
    assert "HF_TOKEN" in env_of(RemoteFiles("hf://datasets/a", (("endpoint", "http://h"),)))
    assert "AZURE_STORAGE_SAS_TOKEN" in env_of(RemoteFiles("abfs://docs", (("account_host", "h"),)))
    assert env_of(RemoteFiles("s3://docs", (("anon", True),))) == {}
    assert env_of(Corpus("notes.spolia")) == {}
    assert env_of(Qdrant("http://h", api_key_env="K")) == {"K": True}
    monkeypatch.setenv("PGPASSWORD", "s")
    with pytest.raises(VariableRefused, match="PGPASSWORD"):
        refuse_env(Corpus("postgresql://a@h/d"))


def test_the_server_of_a_database_reads_no_files_of_this_machine() -> None:
    for option in ("local_infile=1", "charset=utf8&allow_local_infile=1"):
        with pytest.raises(SourceError, match="local_infile"):
            SQLRows("a", f"mysql+pymysql://ann@h/d?{option}", "t", "id", "body")


def test_a_vector_database_of_a_store_reads_only_variables_that_are_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_stored(Qdrant("http://h"), "chunk")
    monkeypatch.setenv("QDRANT_API_KEY", "k")
    with pytest.raises(StoreError, match="QDRANT_API_KEY"):
        refuse_stored(Qdrant("http://h"), "chunk")
    with allow_env("QDRANT_API_KEY"):
        refuse_stored(Qdrant("http://h"), "chunk")
    with pytest.raises(
        StoreError, match="group 'chunk' of the store: Qdrant reads the environment variable AWS_SECRET"
    ):
        refuse_stored(Qdrant("http://h", api_key_env="AWS_SECRET"), "chunk")
    with allow_env("AWS_SECRET"):
        refuse_stored(Qdrant("http://h", api_key_env="AWS_SECRET"), "chunk")


def test_what_is_no_name_of_a_variable_is_not_allowed() -> None:
    with pytest.raises(VariableRefused, match="is not an environment variable"), allow_env("MY KEY"):
        pass


def test_a_file_of_sources_names_only_what_is_allowed(tmp_path: Path) -> None:
    from spolia.cli.sources import parse_sources

    (tmp_path / "s.yaml").write_text("- WebPages: {start: [http://203.0.113.9/], headers: {Cookie: '${MY_KEY}'}}\n")
    with pytest.raises(FlowFileError, match="--allow-env MY_KEY"):
        parse_sources([], tmp_path / "s.yaml")
    with allow_env("MY_KEY"):
        assert len(parse_sources([], tmp_path / "s.yaml")) == 1
