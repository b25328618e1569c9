"""Subtitles and recordings: what is said is cited by its time, whatever has cut or merged it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from spolia import BM25, Citation, Corpus, Node, Query, sync
from spolia.indexing.readers.converters import MediaReader
from spolia.indexing.readers.reader import Blob
from spolia.indexing.readers.subtitles import SubtitleReader
from spolia.models.http.transcriber import Transcriber
from spolia.post_retrieval import SentenceWindow
from spolia.stores.portable import export_store, import_store
from spolia.testing import OpenAIServer, ServedReply
from spolia.types import Document, Span

TALK = """WEBVTT - A talk

STYLE
::cue { color: white }

NOTE not said
00:00:01.000 -- 00:00:02.000

opening
00:30.000 --> 00:34.000 align:start position:10%
<v Ann>The <b>moon</b> causes
the tides &amp; the currents.

01:05.000 --> 01:08.500
<v.loud Bob>Basalt is dark.

1:00:00.000 --> 1:00:07.250
Marble is bright.
"""


def read(name: str, text: str) -> Document:
    return SubtitleReader().read(Blob(name, text.encode())).document


def cues(document: Document) -> list[tuple[tuple[float, float] | None, str]]:
    return [(region.seconds, document.text[region.start : region.end]) for region in document.regions]


def place_of(node: Node) -> str:
    assert node.span is not None
    return node.span.place


def test_the_media_type_is_that_of_the_content() -> None:
    of_srt = "1\n00:01:05,000 --> 00:01:07,500\nBasalt is dark.\n"
    assert (read("a.srt", of_srt).media_type, read("a.vtt", TALK).media_type) == ("application/x-subrip", "text/vtt")


def test_cues_of_webvtt_keep_speakers_and_times_and_nothing_else() -> None:
    assert cues(read("a.vtt", TALK)) == [
        ((30.0, 34.0), "Ann: The moon causes the tides & the currents."),
        ((65.0, 68.5), "Bob: Basalt is dark."),
        ((3600.0, 3607.25), "Marble is bright."),
    ]
    assert read("a.vtt", TALK).text.count("\n") == 2


def test_cues_of_subrip_may_have_blank_lines_and_lack_them() -> None:
    text = (
        "1\r\n00:00:01,000 --> 00:00:02,000\r\n{\\an8}<i>One</i>\r\n\r\nand a < b.\r\n\r\n2\r\n"
        "00:00:03,5 --> 00:00:02,0\r\nTwo.\r\n3\r\n00:00:05,000 --> 00:00:06,000\r\n42"
    )
    assert cues(read("a.srt", text)) == [
        ((1.0, 2.0), "One and a < b."), ((3.5, 3.5), "Two."), ((5.0, 6.0), "42"),
    ]  # fmt: skip


def test_captions_that_roll_up_say_each_line_once() -> None:
    text = (
        "WEBVTT\n\n00:00.000 --> 00:02.000\n \nold<00:00:01.000><c> walls</c>\n\n"
        "00:02.000 --> 00:02.010\nold walls\n \n\n"
        "00:02.010 --> 00:04.000\nold walls\nold<00:00:03.000><c> stones</c>\n"
    )
    assert cues(read("a.vtt", text)) == [((0.0, 2.0), "old walls"), ((2.01, 4.0), "old stones")]


def test_a_file_without_times_is_plain_text_and_an_empty_one_is_empty() -> None:
    reading = SubtitleReader().read(Blob("a.srt", b"1\nJust a text."))
    assert (reading.document.text, reading.document.regions) == ("1\nJust a text.", ())
    assert "No line is a time such as" in reading.warnings[0]
    assert read("a.vtt", "WEBVTT\n").text == ""


def test_a_time_may_lack_its_fraction() -> None:
    assert cues(read("a.srt", "1\n00:00:01 --> 00:00:10\nold walls\n")) == [((1.0, 10.0), "old walls")]


def test_a_place_is_a_time_then_a_page_then_lines() -> None:
    places = [
        Citation("1", "n", "d", "a.vtt", "", span).place
        for span in (
            Span(0, 9, lines=(1, 2), seconds=(65.0, 72.5)),
            Span(0, 9, seconds=(3725.1, 3725.9)),
            Span(0, 9, pages=(2, 2), lines=(1, 2)),
            Span(0, 9),
            None,
        )
    ]
    assert places == ["a.vtt, 0:01:05–0:01:12", "a.vtt, 1:02:05", "a.vtt, page 2", "a.vtt", "a.vtt"]


@pytest.mark.slow
def test_nodes_keep_the_time_through_splitting_merging_export_and_access(tmp_path: Path) -> None:
    folder = tmp_path / "talks"
    folder.mkdir()
    (folder / "a.vtt").write_text(TALK)
    corpus = Corpus(str(tmp_path / "a.spolia"))
    sync(folder, corpus)
    (hit,) = BM25(corpus.group("sentence"), top_k=1)(Query("dark basalt")).hits
    assert (hit.node.text, hit.node.span and hit.node.span.seconds) == ("Bob: Basalt is dark.", (65.0, 68.5))
    (wide,) = SentenceWindow(corpus, 1)(BM25(corpus.group("sentence"), top_k=1)(Query("dark basalt"))).hits
    assert place_of(wide.node) == "0:00:30–1:00:07"
    (whole,) = BM25(corpus.group("chunk"), top_k=1)(Query("dark basalt")).hits
    assert place_of(whole.node) == "0:00:30–1:00:07"
    with corpus.writer() as writer:
        (document,) = writer.documents()
        writer.set_readers(document, ["ann"])
        writer.publish()
    export_store(corpus, tmp_path / "a.zip")
    second_corpus = Corpus(str(tmp_path / "b.spolia"))
    import_store(tmp_path / "a.zip", second_corpus)
    for store in (corpus, second_corpus):
        nodes = store.latest().all_nodes("sentence", frozenset({"ann"}))
        assert list(map(place_of, nodes)) == [
            "0:00:30–0:00:34",
            "0:01:05–0:01:08",
            "1:00:00–1:00:07",
        ]
        assert store.latest().check(deep=True) == []


@pytest.mark.slow
def test_what_a_server_hears_is_cited_by_its_time(tmp_path: Path) -> None:
    (tmp_path / "talks").mkdir()
    (tmp_path / "talks" / "a.mp3").write_bytes(b"...")
    segments = b'[{"start": 0, "end": 4, "text": "The moon."}, {"start": 65, "end": 72.5, "text": "Basalt is dark."}]'
    corpus = Corpus(str(tmp_path / "a.spolia"))
    with OpenAIServer(ServedReply(body=b'{"text": "...", "segments": ' + segments + b"}")) as server:
        sync(tmp_path / "talks", corpus, readers={"*.mp3": MediaReader(Transcriber("whisper-1", server.url))})
    (hit,) = BM25(corpus.group("sentence"), top_k=1)(Query("dark basalt")).hits
    assert place_of(hit.node) == "0:01:05–0:01:12"


@pytest.mark.slow
def test_a_time_that_was_changed_in_the_store_is_found(tmp_path: Path) -> None:
    (tmp_path / "talks").mkdir()
    (tmp_path / "talks" / "a.vtt").write_text(TALK)
    corpus = Corpus(str(tmp_path / "a.spolia"))
    sync(tmp_path / "talks", corpus)
    with closing(sqlite3.connect(tmp_path / "a.spolia" / "corpus.db")) as connection, connection:
        connection.execute("UPDATE nodes SET seconds = '[31.0,3607.25]' WHERE seconds = '[30.0,3607.25]'")
    (problem,) = corpus.latest().check(deep=True)
    assert "1 rows of nodes are not as they were written" in problem
