"""Analysis of texts into terms, and the language of a corpus in Latin script, guessed from its function words."""

import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from spolia.core.patterns import pattern
from spolia.deferred import tantivy, tokenizers
from spolia.errors import SpoliaError, require
from spolia.types import Value

# The commonest function words of each language, without accents. Words that several languages share count for each of
# them; what decides is the sum.
FUNCTION_WORDS: dict[str, frozenset[str]] = {
    language: frozenset(words.split())
    for language, words in {
        "danish": "og i at det er en til af den som for de der med ikke har et var jeg om efter blev kun hvad ogsa",
        "dutch": "de het een van en in is op te dat die voor met zijn niet aan er om ook als door bij naar wordt",
        "english": "the of and in to a is was that for on as with by at it from his an were are which be this or",
        "finnish": "ja on oli ei se etta han joka mutta ovat kun niin olla sen tai myos hanen vuonna joka mika ne",
        "french": "le la les de des du et en un une est que qui dans pour par sur il au avec ne pas ce plus son sont",
        "german": "der die das und in den von zu mit ist im des sich auf fur nicht ein eine als auch dem wird aus war",
        "hungarian": "a az es hogy nem is egy meg volt ez de van csak mint mar ha vagy azt el ezt amely ki kell lett",
        "italian": "il lo la di e che in un una per del della con non si da sono come nel alla piu gli dei anche le",
        "norwegian": "og i det er en til av som for de med ikke har et var pa den fra om etter ble hun kun noe blant",
        "portuguese": "o os a as de do da dos das em e que um uma no na para com por nao se mais foi ao como sao",
        "romanian": "si in de la a cu pe din care un o este nu au fost pentru mai ca sa prin lui sunt ale dupa cel",
        "spanish": "el la los las de y en que un una del se por con no su para es al lo como mas fue sus entre era",
        "swedish": "och i att det ar en som till av for den med pa de inte ett har om var men fran vid sig kan efter",
        "turkish": "ve bir bu da de ile icin olarak en daha olan cok gibi kadar sonra ise ne her o tarafindan veya hem",
    }.items()
}
_WORD = pattern(r"[^\W\d_]+")
_MIN_SHARE, _MIN_WORDS = (
    0.08,
    3,
)  # of the words: running text has 0.2 to 0.5 function words, lists of names and code fewer


def language_of(texts: Iterable[str], *, default: str = "english", words: int = 20_000) -> str:
    """Return the language whose function words are commonest in `words` words, or `default` if none is common enough.

    >>> language_of(["¿Cuál es la capital de los Países Bajos y por qué se llama así?"])
    'spanish'
    >>> language_of(["東京は日本の首都です。"])
    'english'
    """
    word_counts: Counter[str] = Counter()
    total = 0
    for text in texts:
        plain = text[: 20 * words].lower()  # a word hardly has 20 letters: of a huge text the beginning will do
        if not plain.isascii():
            plain = "".join(c for c in unicodedata.normalize("NFD", plain) if not unicodedata.combining(c))
        matches = _WORD.findall(plain)
        word_counts.update(matches)
        total += len(matches)
        if total >= words:
            break
    counts = {
        name: sum(word_counts[word] for word in function_words) for name, function_words in FUNCTION_WORDS.items()
    }
    best = max(counts, key=lambda name: (counts[name], name == default))
    return best if counts[best] >= max(_MIN_WORDS, _MIN_SHARE * total) else default


STEMMERS = (
    "arabic", "danish", "dutch", "english", "finnish", "french", "german", "greek", "hungarian", "italian",
    "norwegian", "portuguese", "romanian", "russian", "spanish", "swedish", "tamil", "turkish",
)  # fmt: skip
VERSION = 2
"""Version 1, of stores made before, has words and pairs of characters alone."""
_VERSIONS = (1, VERSION)
_TOKENS_KEPT, _LONGEST_KEPT = 100_000, 64  # tokens, and characters of one: longer ones hardly occur twice
LONGEST_TERM_BYTES = 255  # longer "words" are encoded data; nobody searches for them

# Scripts with a stemmer of their own, and the characters by which they are recognised (after NFKC).
_STEMMED = {"greek": "\u0370-\u03ff\u1f00-\u1fff", "russian": "\u0400-\u052f", "arabic": "\u0600-\u06ff\u0750-\u077f",
            "tamil": "\u0b80-\u0bff"}  # fmt: skip
# Two characters are about a word of Chinese, Japanese or Korean: R@1 on cmrc2018 / drcd / korquad_dev is 96 / 90 / 90 %
# with bigrams, 90 / 85 / 85 % with trigrams. Words of one character (猫, 税, 개) are found by single characters. A Thai
# syllable is longer: R@1 on xquad_th is 89 % with bigrams, 93 % with trigrams, and with both, so that words of two
# letters are still found.
_IDEOGRAPHIC = (
    "\u1100-\u11ff\u3005-\u3007\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u318f\u31a0-\u31bf\u31f0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\U0001b000-\U0001b16f\U00020000-\U000323af"
)
_SYLLABIC = "\u0e01-\u0e3a\u0e40-\u0e4e\u0e50-\u0e59\u0e81-\u0eff\u1000-\u1049\u1050-\u109f\u1780-\u17d3\u17dc-\u17f9"
_RUN = pattern(f"([{_IDEOGRAPHIC}]+|[{_SYLLABIC}]+)")
_NOT_LATIN = pattern(f"[{''.join(_STEMMED.values())}{_IDEOGRAPHIC}{_SYLLABIC}]")
_BEYOND_LATIN = pattern(  # letters, punctuation and currencies that are seen, before the first marks
    "[^\x00-\xac\xae-\u02ff\u2000-\u200b\u2010-\u2029\u202f-\u205f\u2070-\u20cf]"
)
_SCRIPTS = tuple((name, pattern(f"[{characters}]")) for name, characters in _STEMMED.items())
_THAI_LIKE = pattern(f"[{_SYLLABIC}]")

# What is written and not seen: soft hyphens, joiners, bidi controls, byte order marks. A zero-width space is a space.
_INVISIBLE = "\u00ad\u061c\u180e\u200c-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff"
_ACCENTS = "\u0300-\u036f\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0640\u064b-\u065f\u0670"
_DROPPED = {False: pattern(f"[{_INVISIBLE}]"), True: pattern(f"[{_INVISIBLE}{_ACCENTS}]")}
UNSPACED = f"{_IDEOGRAPHIC}{_SYLLABIC}"
"""Characters of scripts that put no spaces between words, as a class of regular expressions."""
UNSEEN = _DROPPED[True]
"""What makes no difference to a word: what is not seen, and accents that stand for themselves."""
_SURROGATES = pattern("[\ud800-\udfff]")
_TOKENS = "".join(chr(code) if chr(code).isalnum() or chr(code) in "+#-" else " " for code in range(128))
"""For each character of ASCII itself if it may be part of a token, or a blank."""
_TOKEN_BYTES = bytes(ord(_TOKENS[byte]) if byte < 128 else byte for byte in range(256))
"""The same for UTF-8; the bytes of other characters stay as they are."""

# Spellings of which a search with another one finds nothing, and what they are searched as.
_COMPOUND = pattern("[^\\W_]+(?:[-\u2010][^\\W_]+)+")  # Wi-Fi as wifi
_SIGNED = pattern("[^\\W\\d_]+(?:\\+\\+|#)(?![^\\W\\d_])")  # C++, C#
_QUANTITY = pattern("(?<![^\\W_])(\\d+)(?!st|nd|rd|th)([^\\W\\d_]{1,3})(?![^\\W_])", re.I)  # 12mm as 12 mm, but not 2nd
_HUMPS = pattern("[a-z][A-Z]|[A-Z]{2}[a-z]{2}")  # HTTPServerError as HTTP Server Error
_HUMP = pattern("[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_PICTOGRAPH = pattern("[\u2600-\u27bf\U0001f300-\U0001faff]")


@dataclass(frozen=True)
class Analyzer(Value):
    """Settings of the analysis, described fully by their fields, so that a manifest can tell two analysers apart.

    Args:
        stem: language of the stemmer for words in Latin script, empty for none at all. Arabic, Cyrillic, Greek and
            Tamil words get the stemmer of their script. Measured, R@1 without and with: xquad_en 92.7, 93.6;
            squad2_dev 80.5, 83.3; arcd 55.6, 67.7; xquad_es 91.1, 92.0 with the English one and 92.7 with the Spanish
            one, so a wrong guess does no harm.
        fold: drop accents (after NFKC), so that a question typed without them finds the same. R@2 on xquad_es 94.9,
            with it 95.2; on squad2_dev 88.4 and 88.7.
        stop_words: language whose stop words are dropped; empty keeps them all. Dropping them moved R@1 by at most one
            point on nine English sets, in both directions, and would make "to be or not to be" unsearchable.
        ngram: if not 0, character n-grams of this length within words, for every script.
        tokenizer: if not empty, path of a `tokenizer.json`: its subword tokens are the terms. Write
            `Analyzer.subword(path)`, which also fills in the hash.
        tokenizer_hash: BLAKE2b of that file; another file raises.
        version: counted up when the same fields give other terms. A group keeps the version that it was built with.

    Raises:
        SpoliaError: for an unknown language, or another version than this release has.

    >>> Analyzer().terms("The cafés of Zürich, 2nd floor")
    ['the', 'cafe', 'of', 'zurich', '2nd', 'floor']
    >>> Analyzer().terms("東京タワー 333m")
    ['東京', '京タ', 'タワ', 'ワー', '東', '京', 'タ', 'ワ', 'ー', '333m', '333', 'm']
    >>> Analyzer().terms("Wi-Fi in C++"), Analyzer(version=1).terms("Wi-Fi in C++")
    (['wi', 'fi', 'wifi', 'in', 'c', 'c++'], ['wi', 'fi', 'in', 'c'])
    >>> Analyzer(ngram=3).terms("Stone")
    ['sto', 'ton', 'one']
    """

    stem: str = "english"
    fold: bool = True
    stop_words: str = ""
    ngram: int = 0
    tokenizer: str = ""
    tokenizer_hash: str = ""
    version: int = VERSION

    def __post_init__(self) -> None:
        for name in ("stem", "stop_words"):
            if getattr(self, name) and getattr(self, name) not in STEMMERS:
                raise SpoliaError(
                    f"There is no language {getattr(self, name)!r} for {name}. Write one of: {', '.join(STEMMERS)}, "
                    f'or "" for none.'
                )
        if self.version not in _VERSIONS:
            raise SpoliaError(
                f"The terms were made by version {self.version} of the analyser; this release has version {VERSION}. "
                "Build the group again."
            )
        if self.ngram < 0:
            raise SpoliaError(f"ngram is {self.ngram}. Write the number of characters, or 0 for words.")

    @classmethod
    def subword(cls, path: str) -> "Analyzer":
        """Return an analyser whose terms are the subword tokens of a `tokenizer.json`."""
        return cls(tokenizer=path, tokenizer_hash=_hash_of(path))

    def terms(self, text: str) -> list[str]:
        """Return the terms of a text, with repetitions; none holds white space. Any string is fine.

        >>> Analyzer().terms("nul\\0 and \\u202ebidi\\u202c and a lone \\ud800 surrogate")
        ['nul', 'and', 'bidi', 'and', 'a', 'lone', 'surrog']
        """
        return self.term_text(text).split()

    def words(self, text: str) -> list[str]:
        """Return the terms of a text without other spellings, all of which occur wherever its words do.

        >>> Analyzer().words("Apple-pie 12mm"), Analyzer().terms("Apple-pie 12mm")
        (['appl', 'pie', '12mm'], ['appl', 'pie', 'applepi', '12mm', '12', 'mm'])
        """
        return self._term_text(text, False).split()

    def term_text(self, text: str) -> str:
        """Return the terms of a text, joined by single blanks."""
        return self._term_text(text, self.version > 1)

    def _term_text(self, text: str, spellings: bool) -> str:
        if self.tokenizer:
            return " ".join(_subwords(self.tokenizer, self.tokenizer_hash)(_plain(text, False)))
        if self.ngram:
            words = _words("", self.fold, "", longest=0)(_plain(text, self.fold)).split()
            return " ".join(gram for word in words if _is_text(word) for gram in _grams(word, self.ngram))
        text = unicodedata.normalize("NFKC", text)
        if text.isascii() or _BEYOND_LATIN.search(text) is None:
            return _latin_words(self.stem, self.fold, self.stop_words, spellings)(text)
        text = _plain(text, self.fold)
        if _NOT_LATIN.search(text) is None:
            return _words(self.stem, self.fold, self.stop_words, spellings=spellings)(text)
        return self._mixed_terms(text, spellings)

    def _mixed_terms(self, text: str, spellings: bool) -> str:
        scripts = tuple(name for name, script in _SCRIPTS if script.search(text)) if self.stem else ()
        words = _words(self.stem, self.fold, self.stop_words, scripts, spellings=spellings)
        terms: list[str] = []
        for index, run in enumerate(_RUN.split(text)):
            if index % 2 == 0:
                terms.append(words(run))
            else:
                terms += _grams(run, 2)
                if _THAI_LIKE.match(run):
                    terms += _grams(run, 3) if len(run) > 2 else ()
                elif spellings and len(run) > 1:
                    terms += run
        return " ".join(filter(None, terms))


def analyzer_for(sample_texts: Iterable[str]) -> Analyzer:
    """Return the default analyser with the stemmer of the language that the sample is written in.

    >>> analyzer_for(["Der Turm, der in der Stadt steht, ist nicht hoch."]).stem
    'german'
    """
    return Analyzer(stem=language_of(sample_texts))


def is_mostly_words(text: str) -> bool:
    """Return whether most letters of a text become words, not n-grams.

    >>> is_mostly_words("Words, and 東京"), is_mostly_words("東京タワー tall")
    (True, False)
    """
    in_runs = sum(map(len, _RUN.findall(text)))
    return 2 * in_runs <= sum(map(str.isalnum, text))


def _plain(text: str, fold: bool) -> str:
    """Give one spelling to what looks the same: NFKC, without invisible characters and, on request, accents."""
    if text.isascii():
        return text
    return _SURROGATES.sub(" ", _DROPPED[fold].sub("", unicodedata.normalize("NFKC", text)))


def _is_text(word: str) -> bool:
    """Return whether a word is no encoded data: short, or of a script where a whole clause stands without a space."""
    return len(word.encode()) <= LONGEST_TERM_BYTES or _RUN.search(word) is not None


def _grams(run: str, n: int) -> list[str]:
    if n == 2 and len(run) > 1:
        return [a + b for a, b in pairwise(run)]
    return [run[i : i + n] for i in range(len(run) - n + 1)] or [run]


@lru_cache(maxsize=64)
def _latin_words(stem: str, fold: bool, stop_words: str, spellings: bool) -> Callable[[str], str]:
    """Return the analysis of Latin text without marks, which needs no Unicode classes: same terms in half the time."""
    return _by_token(tantivy.Tokenizer.simple(), fold, (stem,), stop_words, spellings)


@lru_cache(maxsize=64)
def _words(
    stem: str,
    fold: bool,
    stop_words: str,
    scripts: tuple[str, ...] = (),
    longest: int = LONGEST_TERM_BYTES,
    spellings: bool = False,
) -> Callable[[str], str]:
    # Letters, their marks and digits: a mark inside a word (Devanagari, Arabic) does not end it.
    stems = (stem, *(s for s in scripts if s != stem))
    return _by_token(tantivy.Tokenizer.regex(r"[\p{L}\p{M}\p{N}]+"), fold, stems, stop_words, spellings, longest)


def _by_token(
    tokenizer: Any,
    fold: bool,
    stems: tuple[str, ...],
    stop_words: str,
    spellings: bool,
    longest: int = LONGEST_TERM_BYTES,
) -> Callable[[str], str]:
    filters = [tantivy.Filter.remove_long(longest + 1)] if longest else []  # it removes what is as long, too
    if fold:
        filters.append(tantivy.Filter.ascii_fold())  # before lower-casing: İ has no lower case in one character
    filters += [tantivy.Filter.lowercase()]
    filters += [tantivy.Filter.stopword(stop_words)] if stop_words else []
    filters += [tantivy.Filter.stemmer(language) for language in filter(None, stems)]
    terms = _TokenTerms(_build_analyzer(tokenizer, filters), spellings)
    return lambda text: " ".join(filter(None, map(terms.__getitem__, _tokens(text))))


def _tokens(text: str) -> list[str]:
    """Cut a text at everything in ASCII that is neither a letter, a digit nor part of another spelling."""
    if text.isascii():
        return text.translate(_TOKENS).split()
    return text.encode().translate(_TOKEN_BYTES).decode().split()  # a third of the time of str.translate


def _build_analyzer(tokenizer: Any, filters: Iterable[Any]) -> Callable[[str], list[str]]:
    builder = tantivy.TextAnalyzerBuilder(tokenizer)
    for token_filter in filters:
        builder = builder.filter(token_filter)
    analyze: Callable[[str], list[str]] = builder.build().analyze
    return analyze


class _TokenTerms(dict[str, str]):
    """Cache of the terms of tokens, joined by blanks. A language has few words that occur often: most are looked up
    here."""

    def __init__(self, analyze: Callable[[str], list[str]], spellings: bool) -> None:
        super().__init__()
        self._analyze, self._spellings = analyze, spellings

    def __missing__(self, token: str) -> str:
        lower = token.lower()
        if token != lower and token.isascii() and token.isalpha() and token[1:] in (lower[1:], token[1:].upper()):
            # Plain words share the entry of their lower case, which gives the same terms.
            terms = self[lower]
        else:
            terms = " ".join(filter(None, self._terms(token)))  # of marks alone a stemmer leaves nothing
        if len(token) <= _LONGEST_KEPT:
            if len(self) >= _TOKENS_KEPT:
                self.clear()
            self[token] = terms
        return terms

    def _terms(self, token: str) -> Iterator[str]:
        yield from self._analyze(token)
        if not self._spellings or token.isdigit() or len(token) > _LONGEST_KEPT:
            return
        if not token.islower() and _HUMPS.search(token):
            humps = [hump for hump in _HUMP.findall(token) if len(hump) > 1]
            yield from self._analyze(" ".join(humps)) if len(humps) > 1 else ()  # not for iPhone, PhD
        if not token.isalpha():
            yield from map(str.lower, _SIGNED.findall(token))
            yield from _PICTOGRAPH.findall(token)
            for compound in _COMPOUND.findall(token):
                yield from self._analyze(compound.replace("-", "").replace("\u2010", ""))
            for number, unit in _QUANTITY.findall(token):
                yield from self._analyze(f"{number} {unit}")


@lru_cache(maxsize=8)
def _subwords(path: str, expected: str) -> Callable[[str], list[str]]:
    require(tokenizers, "Indexing subword tokens")
    if expected and _hash_of(path) != expected:
        raise SpoliaError(
            f"{path} is not the tokenizer that the analyser was made with: its hash is {_hash_of(path)}, not "
            f"{expected}. Put the old file back, or build the group again with Analyzer.subword(path)."
        )
    tokenizer = tokenizers.Tokenizer.from_file(path)
    tokenizer.no_truncation()
    tokenizer.no_padding()
    unknown = getattr(tokenizer.model, "unk_token", None)  # the same term for all that is unknown would match anything

    def terms(text: str) -> list[str]:
        tokens = tokenizer.encode(text, add_special_tokens=False).tokens
        return ["▁".join(token.split()) for token in tokens if token != unknown and not token.isspace()]

    return terms


def _hash_of(path: str) -> str:
    try:
        return hashlib.blake2b(Path(path).read_bytes(), digest_size=16).hexdigest()
    except OSError as error:
        raise SpoliaError(
            f"No tokenizer could be read from {path}: {error.strerror}. Write the path of a tokenizer.json."
        ) from error


_LETTERS = f"\\w\u0900-\u0dff{UNSPACED}"  # Indic vowel signs are marks, which \\w leaves out
_PHRASE_WORD = pattern(f"(?:(?!_)[{_LETTERS}])+")
_GAP = f"(?:[^{_LETTERS}]|_)+"
_BEGINS = f"(?:(?<=[_{UNSPACED}])|(?<![{_LETTERS}]))"
_ENDS = f"(?:(?=[_{UNSPACED}])|(?![{_LETTERS}]))"
_UNSPACED = pattern(f"[{UNSPACED}]")


def contains_phrase(text: str, phrase: str) -> bool:
    """Return whether the words of a phrase occur in a text one after the other, with anything but words between them.

    A phrase without words stands nowhere. Where a script puts no spaces between words, characters are compared.

    >>> contains_phrase("An APPLE-PIE, please", "apple pie")
    True
    >>> contains_phrase("apple and pie", "apple pie"), contains_phrase("applause", "app")
    (False, False)
    >>> contains_phrase("東京タワーは高い", "タワー"), contains_phrase("Zürich", "zurich")
    (True, True)
    """
    phrase_pattern = _compile_phrase(phrase)
    return phrase_pattern is not None and phrase_pattern.search(_folded(text)) is not None


def phrase_words(phrase: str) -> list[str]:
    """Return the words of a phrase.

    >>> phrase_words("Apple-pie!"), phrase_words("?!")
    (['apple', 'pie'], [])
    """
    return _PHRASE_WORD.findall(_folded(phrase))


@lru_cache(maxsize=1024)
def _compile_phrase(phrase: str) -> re.Pattern[str] | None:
    parts = phrase_words(phrase)
    if not parts:
        return None
    start = "" if _UNSPACED.match(parts[0][0]) else _BEGINS
    end = "" if _UNSPACED.match(parts[-1][-1]) else _ENDS
    return re.compile(start + _GAP.join(map(re.escape, parts)) + end)


def _folded(text: str) -> str:
    if text.isascii():
        return text.lower()
    return unicodedata.normalize("NFC", UNSEEN.sub("", unicodedata.normalize("NFKD", text))).casefold()
