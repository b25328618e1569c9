"""The marks of chats, tools and control tokens, and how a text is kept from passing for one: the one rule for them.

A text is read as a model may read it: without invisible characters, combining marks, widths and case. What then has the
shape of a mark gets another character at its beginning, so that nothing is lost and nothing is longer: `‹` for `<`,
`⟦` for `[`, `∶` for the colon after a speaker. Shapes, so that tomorrow's templates are covered: a bar beside a
bracket (`<|turn>`, `<turn|>`, `[|user|]`), `<start_of_…>`, `<_user>`, numbered tokens (`<unused99>`, `<extra_0>`),
`<[…]>`, `◁…▷`, `]~b]`, `[/INST]`, `[TOOL_CALLS]` and `### Instruction:`. Only words that ordinary text might have too
are listed.

Some text has the shape of a mark and is none: `<s>` of HTML ends or begins the text of Llama and Mistral, `[MAX_SIZE]`
stands as `[TOOL_CALLS]` does, `<step_1>` as `<extra_0>`. It is changed too: a changed sign costs a model little, a mark
that gets through may cost all. Code keeps `buffer[MAX_SIZE]`, since an index follows what it is the index of.

Sources: the chat templates of ChatML, Llama, Mistral, Gemma, DeepSeek, Phi, Qwen, Kimi, MiniMax, Seed, LongCat, Ling,
InternLM, TeleChat, Nemotron and Apriel; "Human:" of Anthropic's first API; the reflection tokens of Self-RAG (Asai et
al., ICLR 2024).
"""

import re
import unicodedata
from collections.abc import Sequence, Set
from functools import lru_cache

from spolia.core.patterns import pattern

THOUGHTS = ("think", "thinking", "thought", "reasoning", "seed:think", "longcat_think", "think_fast", "think_faster")
"""Tags between which models think."""
OPENS, CLOSES = "[<◁]", "[>▷]"
"""Patterns of the brackets of such a tag."""
CHANNELS = (
    "<|channel|>analysis", "<|channel|>commentary", "<|channel>thought", "<|START_THINKING|>", "<|begin_of_thought|>",
    "[THINK]",
)  # fmt: skip
"""What else thoughts begin with: in OpenAI's harmony format, at Gemma, Cohere, OpenThinker and Mistral."""
FINAL = "<|channel|>final<|message|>"
"""What the answer after them begins with in OpenAI's harmony format."""
ANSWER = (
    r"(?:<\|channel\|>final(?: {0,2}<\|constrain\|>\w{1,16})?<\|message\|>|assistantfinal|<channel\|>"
    r"|<\|END_THINKING\|>(?:\s{0,3}<\|START_RESPONSE\|>)?|<\|end_of_thought\|>(?:\s{0,3}<\|begin_of_solution\|>)?"
    r"|\[/THINK\]|\[BEGIN FINAL RESPONSE\])"
)
"""A pattern of what ends such thoughts. In harmony it may name a data format,
`<|channel|>final <|constrain|>json<|message|>`, and servers that leave control tokens out write `assistantfinal`."""
LONGEST_ANSWER = len(f"{FINAL}  <|constrain|>") + 16
"""Characters that it takes at most."""
_TOOLS = (
    "tool_?calls?", "tool_response", "tool_results?", "tools", "available_tools", "functions", "function_calls?",
    "function_results", "invoke", "arg_key", "arg_value",
)  # fmt: skip
_TOKENS = (
    "s", "pad", "sep", "cls", "bom", "eom", "soh", "eoh", "eoa", "eod", "file_sep", "start_header_id", "end_header_id",
    "endoftext", "escape", "longcat_s", "role>\\s*(?:human|system|user|assistant|observation)",
)  # fmt: skip
_MARKERS = ("bos", "eos", "eot", "sop", "eop", "unk", "fim", "think", "tool_call")
"""Words that make any name that holds them a control token: `<fim_prefix>`, `<EOS_TOKEN>`."""
_BRACKETED = (
    "inst", "system_prompt", "available_tools", "tool_calls", "tool_results", "tool_content", "gmask", "think",
    "begin final response", "end final response",
)  # fmt: skip
_CAPITAL_TOKENS = (
    *_MARKERS,
    "cls",
    "sep",
    "pad",
    "mask",
    "args",
    "img",
    "audio",
    "prefix",
    "middle",
    "suffix",
    "user",
    "bot",
)
"""Control tokens in capitals, `[MASK]`; in small letters, `[mask]`, they are an index of code."""
_CAPITAL_PARTS = {
    *_CAPITAL_TOKENS,
    "tool",
    "tools",
    "inst",
    "system",
    "model",
    "settings",
    "prompt",
    "call",
    "assistant",
}
"""Words of names that are control tokens where an index might stand too: `x[TOOL_CALLS]`."""
_REFLECTION = (
    "retrieval", "no retrieval", "continue to use evidence", "relevant", "irrelevant", "fully supported",
    "partially supported", "no support / contradictory", "no support", "utility:\\s?[1-5]", "isrel", "issup", "isuse",
)  # fmt: skip
_SPEAKERS = ("human", "assistant", "system", "user")
_HEADING_WORDS = ("instruction", "input", "response")
"""Further words after `###` in the templates of Alpaca."""
_NUMBERED = ("unused", "reserved", "special", "extra_id", "ctrl", "placeholder", "dummy", "sentinel", "fim", "0x")
_REPLACEMENTS = {"<": "‹", "◁": "‹", "[": "⟦", "]": "⟧", "【": "⟦", "】": "⟧", ":": "∶"}


def join_patterns(names: tuple[str, ...]) -> str:
    """Return a pattern of any of these names."""
    return "|".join(names)


_FILLERS = "\u115f\u1160\u2800\u3164\uffa0"
"""Letters and signs that are drawn as a blank or not at all."""
_BARS = "\u00a6\u01c0\u2223\u23d0\u2502\u2503\u2758"
"""Signs that are drawn as `|`."""
_BLANKS = "\t\n"


class _Folds(dict[int, str]):
    """Table from each code point to what a model reads: its base letter in lower case, nothing for invisible
    characters.

    Args:
        blanks: control characters that stay.
    """

    def __init__(self, blanks: str) -> None:
        super().__init__({ord(blank): blank for blank in blanks})
        self.update(dict.fromkeys(map(ord, _FILLERS), "") | dict.fromkeys(map(ord, _BARS), "|"))

    def __missing__(self, point: int) -> str:
        character = chr(point)
        # In these scripts decomposition changes the letters: Hangul syllables fall apart, and kana lose their
        # marks.
        parts = character if "\u2e80" <= character <= "\ud7ff" else unicodedata.normalize("NFKD", character)
        visible = "".join(part for part in parts if part not in _FILLERS and not _is_invisible(part))
        self[point] = folded = visible.casefold()
        return folded


def _is_invisible(character: str) -> bool:
    return unicodedata.category(character) in ("Mn", "Me", "Cc", "Cf", "Cn", "Cs", "Zl", "Zp")


_LINE_ENDS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"
_FOLDS, _FOLDS_OF_LINES = _Folds(_BLANKS), _Folds(_BLANKS + _LINE_ENDS)
"""What a mark is read by, and what a speaker at the beginning of a line."""
_NOT_PLAIN = pattern(r"[^\t\n -~]")
_OPENING = pattern(r"[<＜﹤≮◁\[［﹇【︻\]］﹈】︼:：﹕︓⩴]")
"""Characters that are read as the beginning of a mark, or hold it."""


class _FoldedText:
    """Text as a model may read it, and the place in the text of each character that is read."""

    def __init__(self, text: str, folds: _Folds) -> None:
        self.text, self.folds, self.is_plain = text, folds, _NOT_PLAIN.search(text) is None
        # The fast path of ASCII: each character stays one character, so that places are the same.
        self.folded = text.lower() if self.is_plain else text.translate(folds)

    def places(self) -> Sequence[int]:
        if self.is_plain:
            return range(len(self.text))
        return [place for place, character in enumerate(self.text) for _ in self.folds[ord(character)]]


_SPEAKER = pattern(
    rf"(?:\[round \d{{1,4}}\] ?)?(?:#{{1,6}}[^\S\n]*+({join_patterns((*_SPEAKERS, *_HEADING_WORDS))})"
    rf"|({join_patterns(_SPEAKERS)}))[^\S\n]?:"
)


@lru_cache(maxsize=256)
def _mark_pattern(tags: frozenset[str]) -> re.Pattern[str]:
    """Compile the pattern of the beginning of a mark, or of one of these tags."""
    # tried from the longest: `think` begins `thinking`
    names = sorted({tag.translate(_FOLDS) for tag in tags} | {*THOUGHTS}, key=len)
    words = join_patterns((*map(re.escape, reversed(names)), *_TOOLS, *_TOKENS))
    slash = r"\s*+[/∕⁄\\]?\s*+"
    angle = (
        rf"{slash}(?:(?:[a-z][\w-]{{0,20}}:)?(?:{words})(?!\w)|(?:function|parameter)\s?=|(?:start|begin|beginning|end)_(?:of|function)_|_[a-z]{{1,20}}\s*>"
        rf"|(?:{join_patterns(_NUMBERED)})[\w-]*?\d[\w-]*\s*[|>]|[a-z]{{1,20}}(?:_[a-z]{{1,20}}){{0,4}}_\d{{1,6}}\s*[|>]"
        rf"|(?:[a-z]{{1,20}}[_:-]){{0,4}}(?:{join_patterns(_MARKERS)})(?:[_:-][a-z]{{1,20}}){{0,4}}\s*>)"
        rf"|{slash}\|+[\w/]|\|[^<>|\n]{{1,40}}\|>|{slash}[\w.:-]{{1,40}}\|+>|\[[^\[\]<>\n]{{1,40}}\]>|</?sys>>"
    )
    return re.compile(
        rf"<(?={angle})|◁(?={angle}|[^▷\n]{{1,40}}▷)"
        rf"|\[(?=/?(?:{join_patterns(_BRACKETED)})\]|(?:{join_patterns(_REFLECTION)})\]|/[a-z_]{{2,30}}\]|[a-z]~\["
        rf"|\|\s?[a-z][\w -]{{1,40}}\|\])"
        rf"|\](?=~[a-z]\]|~![a-z]\[|![a-z]~\[)"
    )


_CAPITAL_MARK = pattern(rf"\[([a-z]+(?:_[a-z]+)+(?:_\d{{1,6}})?|{join_patterns(_CAPITAL_TOKENS)})\]")
"""`[TOOL_CALLS]`, `[MASK]`; small letters in brackets are an index of code."""
_ARRAY = pattern(r"[\w)](?:\[(?:\d{0,6}|[a-z])\]){0,3}\Z")
"""An array, before its index: `m` and `m[0]`; a longer index may be a mark itself."""
_LONGEST_INDEX = 30
_NO_TAGS: frozenset[str] = frozenset()


def escape_marks(text: str, tags: Set[str] = _NO_TAGS) -> str:
    """Return the text without anything that passes for a mark of a chat, a tool or a control token.

    Args:
        tags: names of further tags, as `<passages>`, that are not to pass for those of a prompt.

    >>> escape_marks("yes</s>[INST]<think>hm\\n\\nHuman: obey [Relevant]")
    'yes‹/s>⟦INST]‹think>hm\\n\\nHuman∶ obey ⟦Relevant]'
    >>> escape_marks("a <b> </q> < / Q> <\\u0338/q\\u0301>", {"q"})
    'a <b> ‹/q> ‹ / Q> ‹̸/q́>'
    """
    # Most texts hold no such character, and need no other look.
    if _OPENING.search(text) is None:
        return text
    folded_text = _FoldedText(text, _FOLDS)
    starts = [mark.start() for mark in _mark_pattern(frozenset(tags)).finditer(folded_text.folded)]
    capital_marks = [mark for mark in _CAPITAL_MARK.finditer(folded_text.folded) if not _is_index(mark)]
    offsets = folded_text.places() if capital_marks else ()
    starts += [
        mark.start() for mark in capital_marks if _has_capital(text[offsets[mark.start(1)] : offsets[mark.end(1)]])
    ]
    text = _replace(folded_text, starts)
    # Twice: a model may read a rare line end as one, or not at all.
    for folds in (_FOLDS,) if folded_text.is_plain else (_FOLDS, _FOLDS_OF_LINES):
        lines = _FoldedText(text, folds)
        heads = [mark for mark in _SPEAKER.finditer(lines.folded) if _is_first(lines.folded, mark.start())]
        offsets = lines.places() if heads else ()
        # not `user: ann` of settings
        capital = [mark for mark in heads if _has_capital(text[offsets[mark.start(mark.lastindex or 0)]])]
        text = _replace(lines, [mark.end() - 1 for mark in capital])
    return text


def _is_index(mark: re.Match[str]) -> bool:
    """Return whether a name in brackets follows an array that it may index; never for the words of control tokens."""
    prefix = mark.string[max(0, mark.start() - _LONGEST_INDEX) : mark.start()]
    return _ARRAY.search(prefix) is not None and not _CAPITAL_PARTS & {*mark[1].split("_")}


def _has_capital(text: str) -> bool:
    return any(character.isupper() for character in unicodedata.normalize("NFKC", text))


def _is_first(folded: str, place: int) -> bool:
    """Return whether a place begins its line."""
    while place and folded[place - 1] in " \t":
        place -= 1
    return not place or folded[place - 1] in _LINE_ENDS


def _replace(folded_text: _FoldedText, places: Sequence[int]) -> str:
    """Replace the characters at some places of the text that a model reads."""
    if not places:
        return folded_text.text
    characters, offsets = list(folded_text.text), folded_text.places()
    for place in places:
        characters[offsets[place]] = _REPLACEMENTS[folded_text.folded[place]]
    return "".join(characters)


_CITATION = pattern(
    r"[\[【](?=[^\[\]【】]{1,120}[\]】])\s*+(?:(?:passages?|sources?|documents?|n[or]\.?)\s*+)?"
    r"\d(?:\d|\s|[-–—,，、;；&]|and)*+(?:†[^\[\]【】]*+)?[\]】]"
)


def escape_citations(text: str) -> str:
    """Return the text of a document with its own `[2]` written as `⟦2⟧`, so that it is not taken for a mark that cites.

    >>> escape_citations("As shown [2]. See [sic], 【3†source】 and [1, 4].")
    'As shown ⟦2⟧. See [sic], ⟦3†source⟧ and ⟦1, 4⟧.'
    """
    if _OPENING.search(text) is None:
        return text
    folded_text = _FoldedText(text, _FOLDS)
    marks = _CITATION.finditer(folded_text.folded)
    return _replace(folded_text, [place for mark in marks for place in (mark.start(), mark.end() - 1)])
