"""Text files in any encoding."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spolia.errors import DocumentError
from spolia.indexing.readers.reader import Blob, Reading
from spolia.indexing.readers.text import TextReader, decode
from tests.cases import check_each


def read(data: bytes, name: str = "notes.txt") -> Reading:
    return TextReader().read(Blob(name, data))


@given(st.text(st.characters(exclude_categories=("Cs", "Cc")), max_size=200))
def test_utf8_is_read_character_for_character(text: str) -> None:
    text = text.lstrip("\ufeff")
    reading = read(text.encode())
    assert (reading.document.text, reading.encoding, reading.warnings) == (text, "utf-8", ())
    assert read(b"\xef\xbb\xbf" + text.encode()).document.text == text


def test_line_ends_are_kept() -> None:
    assert read(b"One.\r\nTwo.\rThree.\n").document.text == "One.\r\nTwo.\rThree.\n"


@check_each("encoding", ["utf-16", "utf-16-be", "utf-16-le", "utf-32", "utf-32-be", "utf-32-le"])
def test_utf16_and_utf32_are_read_with_and_without_a_mark(encoding: str) -> None:
    text = "Spolia are stones – taken from older buildings."
    reading = read(text.encode(encoding))
    assert reading.document.text == text
    assert reading.encoding.startswith(encoding[:6])
    assert bool(reading.warnings) == (len(encoding) > 6)


def test_utf32_with_a_mark() -> None:
    assert read("Stein – ßä".encode("utf-32")).document.text == "Stein – ßä"


@pytest.mark.parametrize("text", ["Ein schöner Tag in Köln.", "Ça va très bien, élève.", "“Quoted” – 5 €"])
def test_latin1_and_cp1252_are_guessed_and_it_is_said(text: str) -> None:
    reading = read(text.encode("cp1252"))
    assert reading.document.text == text
    assert "guess" in reading.warnings[0]


def test_pairs_of_bytes_that_are_utf8_by_chance_make_no_mixed_text() -> None:
    assert read("한국어 텍스트입니다".encode("euc-kr")).document.text == "한국어 텍스트입니다"


def test_mixed_bytes_are_read_each_in_its_encoding_and_it_is_said() -> None:
    reading = read("Grüße, naïve café, déjà vu: ".encode() + "Köln".encode("latin-1"))
    assert reading.document.text == "Grüße, naïve café, déjà vu: Köln"
    assert reading.encoding == "utf-8 and cp1252"
    assert "Bytes that are not UTF-8: 1 (byte" in reading.warnings[0]


@check_each(
    ("data", "said"),
    [
        (b"%PDF-1.7\nrest", "it is a PDF"),
        (b"PK\x03\x04" + bytes(50), "ZIP"),
        (b"\x89PNG\r\n\x1a\n" + bytes(range(256)), "PNG"),
        (bytes(range(256)) * 8, "control characters"),
        (b"a\0b\0\0c" * 50, "control characters"),
        (bytes(byte | 0x80 for byte in Random(0).randbytes(500)), "encoding is unknown"),
    ],
)
def test_binary_and_what_cannot_be_told_is_refused(data: bytes, said: str) -> None:
    with pytest.raises(DocumentError, match=said) as error:
        read(data)
    assert "notes.txt" in str(error.value)


def test_a_stray_nul_is_kept_and_said() -> None:
    reading = read(b"one two three four five \0 six seven")
    assert "\0" in reading.document.text
    assert reading.warnings == ("It holds 1 control characters.",)


def test_an_empty_file_is_an_empty_document() -> None:
    assert read(b"").document.text == ""


def test_the_id_is_of_the_bytes_and_the_reader_not_of_the_name() -> None:
    assert read(b"same", "a.txt").document.id == read(b"same", "b/c.txt").document.id
    assert read(b"same").document.id != read(b"other").document.id


@given(st.binary(max_size=300))
def test_any_bytes_are_a_text_that_can_be_stored_or_an_error(data: bytes) -> None:
    try:
        text = read(data).document.text
    except DocumentError:
        return
    assert text.encode().decode() == text


@check_each(
    ("encodings", "text"),
    [
        ("cp1251 koi8-r cp866 iso8859-5", "Привет, это русский текст о камнях."),
        ("cp1251", "Шишарка лежи под бора, а къщата е стара."),
        ("cp1253 iso8859-7", "Καλημέρα, αυτό είναι ένα κείμενο για πέτρες."),
        ("cp1255", "שלום עולם, זה טקסט בעברית על אבנים"),
        ("cp1256 iso8859-6", "مرحبا بالعالم هذا نص عربي"),
        ("cp874", "สวัสดีชาวโลก นี่คือข้อความภาษาไทย"),
        ("cp1250 iso8859-2", "Zażółć gęślą jaźń, to jest tekst polski"),
        ("cp1250", "jméno,město\nJiří,Plzeň\nŠárka,Žďár\n"),
        ("cp1254", "Bu bir Türkçe metindir, ışık ğüşiöç"),
        ("cp1252", "Müller;Straße"),
        ("cp1252", "price: £30"),
        ("cp932", "日本語の文書です。カタカナもあります。"),
        ("euc_jp", "日本語の文書です。ひらがなもあります。"),
        ("gb18030", "这是一个中文文档，里面有很多常用的汉字。"),
        ("big5", "這是一個中文文件，裡面有很多常用的漢字。"),
        ("cp949", "이것은 한국어 문서입니다. 글자가 많습니다."),
    ],
)
def test_legacy_encodings_are_detected_and_the_confidence_is_reported(encodings: str, text: str) -> None:
    for encoding in encodings.split():
        reading = read(text.encode(encoding))
        assert (encoding, reading.document.text) == (encoding, text)
        assert "guess (confidence " in reading.warnings[0]


def test_a_declaration_and_valid_utf8_go_before_detection() -> None:
    assert decode("Köln".encode("cp1252"), "a.html", "cp1250").encoding == "cp1250"
    assert decode("Привет".encode(), "a.txt").warnings == ()
