import unicodedata
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from spolia.errors import SpoliaError
from spolia.stores.lexical.analysis import Analyzer, analyzer_for
from tests.cases import check_each

plain = Analyzer()


@check_each(
    ("text", "terms"),
    [
        ("Running runners ran", ["run", "runner", "ran"]),
        ("2.5 and GPT4 in snake_case", ["2", "5", "and", "gpt4", "in", "snake", "case"]),
        ("COVID-19, wi\u2010fi", ["covid", "19", "covid19", "wi", "fi", "wifi"]),
        (
            "C++ or C#, F#-like c++17 a+b",
            [*("c", "c++", "or", "c", "c#", "f", "like", "f#", "c", "17", "c++", "a", "b")],
        ),
        ("12mm, 3.5kg, 2nd", ["12mm", "12", "mm", "3", "5kg", "5", "kg", "2nd"]),
        ("HTTPServerErrors iPhone", ["httpservererror", "http", "server", "error", "iphon"]),
        ("🚀 2★", ["🚀", "2", "★"]),
        ("don't", ["don", "t"]),
        ("Ａｂｃ１２ ﬁne", ["abc12", "fine"]),
        ("co\u00adoperation", ["cooper"]),
        ("Straße İstanbul", ["strass", "istanbul"]),
        ("книги и книгой", ["книг", "и", "книг"]),
        ("الكِتابُ الكتـــاب", ["كتاب", "كتاب"]),
        ("नमस्ते", ["नमस्ते"]),
        ("漢字", ["漢字", "漢", "字"]),
        ("水 と 漢字かな", ["水", "と", "漢字", "字か", "かな", *"漢字かな"]),
        ("한국어 사람", ["한국", "국어", *"한국어", "사람", *"사람"]),
        ("ﾀﾜｰ", ["タワ", "ワー", *"タワー"]),
        ("2008年の夏", ["2008", "年の", "の夏", *"年の夏"]),
        ("iPhone手机", ["iphon", "手机", *"手机"]),
        ("ไทย", ["ไท", "ทย", "ไทย"]),
        ("ខ្មែរ", ["ខ្", "្ម", "មែ", "ែរ", "ខ្ម", "្មែ", "មែរ"]),
        ("\u4e00", ["\u4e00"]),
        ("!? … 。・", []),
        ("", []),
    ],
)
def test_terms_are_made_by_script(text: str, terms: list[str]) -> None:
    assert plain.terms(text) == terms


@check_each(
    ("query", "text"),
    [
        ("wifi", "The Wi-Fi is slow."),
        ("wi-fi", "The wifi is slow."),
        ("email", "An e-mail server."),
        ("e-mail", "The email server."),
        ("12 mm", "A bolt of 12mm."),
        ("12mm", "A bolt of 12 mm."),
        ("server error", "class HTTPServerError(Exception)"),
        ("C++", "C++ templates"),
        ("🚀", "The rocket 🚀 launched."),
        ("猫", "私は猫が好きです。"),
        ("개", "그는 개 두 마리를 키운다."),
    ],
)
def test_other_spellings_find_each_other(query: str, text: str) -> None:
    assert set(plain.terms(query)) & set(plain.terms(text))
    assert set(plain.words(text)) <= set(plain.terms(text))


def test_a_sign_belongs_to_its_name() -> None:
    assert "c++" in plain.terms("C++ is compiled")
    assert "c++" not in plain.terms("C# or C")


def test_an_index_of_version_1_keeps_its_terms() -> None:
    text = "Wi-Fi in C++, 12mm HTTPServer 東京タワー 🚀"
    assert Analyzer(version=1).terms(text) == [
        "wi",
        "fi",
        "in",
        "c",
        "12mm",
        "httpserver",
        "東京",
        "京タ",
        "タワ",
        "ワー",
    ]


def test_the_spelling_of_a_character_does_not_matter() -> None:
    for text in ("Müller café", "한국어", "Ελλάδα", "が"):
        assert plain.terms(unicodedata.normalize("NFD", text)) == plain.terms(unicodedata.normalize("NFC", text))


def test_a_question_without_accents_finds_the_same_terms() -> None:
    spanish = Analyzer(stem="spanish")
    assert spanish.terms("¿Qué canción cantó él?") == spanish.terms("Que cancion canto el")
    assert Analyzer(fold=False).terms("café") == ["café"]


def test_ascii_and_other_text_are_cut_alike() -> None:
    text = "It's 3.14 of snake_case; A\tB\0C e-mail@x.org (U.S.) 50% a/b"
    terms = [term for term in plain.terms(text + " é") if term != "e"]
    assert [term for term in plain.terms(text) if term != "e"] == terms


def test_what_cannot_be_seen_does_not_matter() -> None:
    assert plain.terms("a\0b \u202ebidi\u202c x\u200by \ud800 \udfff z\ufeff") == ["a", "b", "bidi", "x", "y", "z"]


@given(st.text(st.characters(codec=None, exclude_categories=())))
@example("\u064b")
def test_any_string_has_terms_without_blanks(text: str) -> None:
    for analyzer in (plain, Analyzer(stem=""), Analyzer(ngram=3), Analyzer(fold=False)):
        terms = analyzer.terms(text)
        assert all(term and not any(c.isspace() for c in term) for term in terms)
        assert all(len(term.encode()) <= 1024 for term in terms)


def test_encoded_data_makes_no_endless_term() -> None:
    assert plain.terms("a" * 100_000) == []


@pytest.mark.parametrize("n", [2, 3])
def test_a_long_clause_without_a_space_has_all_its_ngrams(n: int) -> None:
    clause = "กองกำลังของแพนเธอร์สเสียแต้มเพียงไม่กี่คะแนน" * 5
    by_grams = Analyzer(ngram=n)
    assert len(by_grams.terms(clause)) == 5 * len(by_grams.terms(clause[:44])) + 4 * (n - 1)
    assert by_grams.terms("a" * 100_000) == []


def test_choices_are_fields() -> None:
    assert Analyzer(stem="").terms("Running cafés") == ["running", "cafes"]
    assert Analyzer(stop_words="english").terms("The end of the road") == ["end", "road"]
    assert Analyzer(ngram=2).terms("ab cde f") == ["ab", "cd", "de", "f"]
    assert plain != Analyzer(stem="german")
    with pytest.raises(SpoliaError, match="no language 'klingon' for stem"):
        Analyzer(stem="klingon")
    with pytest.raises(SpoliaError, match="ngram is -1"):
        Analyzer(ngram=-1)
    with pytest.raises(SpoliaError, match=r"version 99 .* Build the group again"):
        Analyzer(version=99)


def test_the_language_of_a_corpus_chooses_the_stemmer() -> None:
    assert analyzer_for(["La casa de los abuelos está en la calle que lleva al mar."]).stem == "spanish"
    assert analyzer_for(["Das Haus der Großeltern steht an der Straße, die zum Meer führt."]).stem == "german"
    assert analyzer_for(["The house of the grandparents is on the road to the sea."]).stem == "english"
    assert analyzer_for([]).stem == analyzer_for(["x = f(y)"]).stem == analyzer_for(["東京"]).stem == "english"


def test_the_tokens_of_a_tokenizer_file(tmp_path: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    vocabulary = {"[UNK]": 0, "stone": 1, "##s": 2, "old": 3}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    path = tmp_path / "tokenizer.json"
    tokenizer.save(str(path))
    analyzer = Analyzer.subword(str(path))
    assert analyzer.terms("old stones zzz \ud800") == ["old", "stone", "##s"]
    path.write_text(path.read_text().replace("old", "new"))
    with pytest.raises(SpoliaError, match="is not the tokenizer that the analyser was made with"):
        Analyzer(tokenizer=str(tmp_path / "." / "tokenizer.json"), tokenizer_hash="0" * 32).terms("x")
    with pytest.raises(SpoliaError, match="No tokenizer could be read"):
        Analyzer.subword(str(tmp_path / "nosuch.json"))


@pytest.mark.parametrize("fold", [True, False])
def test_latin_text_has_the_terms_that_the_classes_of_unicode_give(fold: bool) -> None:
    analyzer = Analyzer(fold=fold)
    for code in (*range(0x300), *range(0x2000, 0x20D0)):
        text = f"Running a{chr(code)}b {chr(code)} 1{chr(code)}2"
        assert analyzer.terms(text) == analyzer.terms(f"{text} \u2e2e")  # which is beyond them, and no word


@pytest.mark.slow
def test_a_word_has_the_same_stem_however_many_were_seen() -> None:
    words = [f"stones{number}ly" for number in range(60_000)]
    assert plain.terms("Running runners " + " ".join(words))[:2] == ["run", "runner"]
    assert plain.terms("runners, running") == ["runner", "run"]
