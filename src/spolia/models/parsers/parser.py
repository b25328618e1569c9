"""Base of all parsers, and what they remove from replies first."""

import re
import unicodedata
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Generic, TypeVar

from spolia.models.marks import ANSWER, CHANNELS, CLOSES, OPENS, THOUGHTS, join_patterns
from spolia.types import Value

Out = TypeVar("Out", covariant=True)

_THINKING = re.compile(
    rf"{OPENS}/?(?:{join_patterns(THOUGHTS)})\s*{CLOSES}|(?-i:{join_patterns(tuple(map(re.escape, CHANNELS)))})|"
    r"<\|start\|>assistant|<\|\w{1,30}\|>",
    re.IGNORECASE,
)
_SPECIAL = re.compile(r"<\|\w{1,30}\|>|</?s>|\[END FINAL RESPONSE\]|[\u200b\u2060\ufeff]")


def extract_thought(reply: str) -> str:
    """Return the thought that a model writes before it replies; empty if it writes none.

    >>> extract_thought("<think>Salo? No.</think> Espoo.")
    'Salo? No.'
    >>> extract_thought("Salo?</think> Espoo."), extract_thought("Espoo.")
    ('Salo?', '')
    """
    thought_pattern, end_pattern = _thought_patterns(THOUGHTS)
    thoughts = [mark[0] for mark in thought_pattern.finditer(reply)]
    *unopened, _ = end_pattern.split(thought_pattern.sub("", reply))
    return " ".join(part for text in (*thoughts, *unopened) if (part := _THINKING.sub("", text).strip()))


def prepend_thought(text: str, thoughts: str) -> str:
    """Return a reply with its thought before it, as models write one whose server sends thoughts within the text."""
    return f"<think>{thoughts}</think>\n{text}" if thoughts else text


NOTHING = "none"
"""The word that a prompt asks for if the reply is empty."""
_NOTHING = re.compile(
    r"[\W_]*(?:(?:no|none) (?:(?:more|further|new|additional|follow-up) )?(?:sub-?)?"
    r"(?:decomposition|rewriting|questions?|quer(?:y|ies)|search(?:es)?)"
    r"(?: (?:is|are))?(?: (?:needed|necessary|required|left))?"
    r"|none|n/a|无|無|没有|沒有|없음|없다|없습니다|なし|ありません)[\W_]*",
    re.IGNORECASE,
)
LONGEST = 200_000
"""Characters of a reply that are looked at."""
END = 2000
"""Characters at the beginning, and at the end, of a long reply among which a verdict is looked for."""


class Parser(ABC, Value, Generic[Out]):
    """Reader of a value in a reply."""

    @property
    def schema(self) -> dict[str, Any]:
        """Return the JSON schema that a server may be held to, so that the reply can be read; empty for plain text."""
        return {}

    @property
    def form(self) -> str:
        """Return how the marks of a reply are written, for a parser that needs some: prompts show it to the model like
        this."""
        return ""

    @property
    def reads_thoughts(self) -> bool:
        """Return whether a thought is part of the value; one that a server sends separately is then put before the
        reply."""
        return False

    @abstractmethod
    def parse(self, reply: str) -> Out:
        """Return the value.

        Raises:
            ValueError: the reply holds none; the message says what it should have looked like.
        """


@lru_cache
def _thought_patterns(names: tuple[str, ...]) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Compile the patterns of a thought between tags of these names, and of the end of one."""
    tags, channels = join_patterns(names), join_patterns(tuple(map(re.escape, CHANNELS)))
    thought_pattern = re.compile(
        rf"{OPENS}({tags}){CLOSES}.*?(?:{OPENS}/\1\s*{CLOSES}|\Z)|(?-i:{channels}).*?(?={ANSWER}|\Z)",
        re.IGNORECASE | re.DOTALL,
    )
    return thought_pattern, re.compile(rf"{OPENS}/(?:{tags})\s*{CLOSES}|{ANSWER}", re.IGNORECASE)


def strip_thoughts(reply: str, requested: tuple[str, ...] = ()) -> str:
    """Return a reply without the thought before it (`<think>`), marks of the chat format and invisible characters.

    Args:
        requested: tags of thoughts that the prompt asks for, which are part of the reply.

    >>> strip_thoughts("<think>yes? no</think> No.<|im_end|>")
    'No.'
    >>> strip_thoughts("◁think▷yes? no◁/think▷ No."), strip_thoughts("<seed:think>yes?</seed:think> No.")
    ('No.', 'No.')
    >>> thought = "<|channel|>analysis<|message|>yes?<|end|>"
    >>> strip_thoughts(f"{thought}<|start|>assistant<|channel|>final<|message|>No.<|return|>")
    'No.'
    >>> strip_thoughts("[THINK]yes?[/THINK]No."), strip_thoughts("<|channel>thought\\nyes?<channel|>No.")
    ('No.', 'No.')
    >>> strip_thoughts("<think>yes?</think><thought>No.</thought>", ("thought",))
    '<thought>No.</thought>'
    """
    thought_pattern, end_pattern = _thought_patterns(tuple(name for name in THOUGHTS if name not in requested))
    text = thought_pattern.sub(" ", reply)
    *earlier, last = end_pattern.split(text)  # the opening mark is often part of the prompt
    # A closing mark at the very end would leave nothing: the answer stands before it.
    if not last.strip() and earlier:
        last = earlier[-1]
    return _SPECIAL.sub("", last).strip()


def says_nothing(reply: str) -> bool:
    """Return whether a reply is the word for nothing, in English or in a language that prompts are shipped in, or says
    so.

    >>> says_nothing("None."), says_nothing("없음."), says_nothing("None of it holds.")
    (True, True, False)
    >>> says_nothing("No decomposition needed."), says_nothing("No further questions."), says_nothing("No questioning")
    (True, True, False)
    """
    return _NOTHING.fullmatch(reply) is not None


_REFUSAL = re.compile(
    r"\W*+(?:unfortunately\W+|regrettably\W+)?(?:"
    r"(?:i(?:['’]m| am) )?(?:(?:very|so|truly|really) )?sorry\b|(?:my )?apologies\b|i apologi[sz]e\b|"
    r"as an ai\b|i must decline\b|"
    r"i(?:['’]m| am) (?:unable|not able) to |"
    r"i (?:can(?:['’]t|not| not)|could ?n['’o]t|won['’]t|will not|do not|don['’]t) "
    r"(?:have (?:enough|access|information)|"
    r"help|assist|provide|answer|fulfil|comply|generate|create|write|produce|do that|reword|rewrite|rephrase|split|"
    r"decompose|break|determine|see (?:a|any|the))\b|"
    r"(?:the|this|your) (?:question|query) (?:can(?:not|['’]t| not) be (?:further )?"
    r"(?:decompos|broken|split|divid|simplif|reword|rephras)|(?:is already|does not need|doesn['’]t need|needs no)\b)|"
    r"es tut mir leid|tut mir leid|ich kann (?:das|ihnen|dir|dabei|diese|leider|nicht)\b|"
    r"(?:je suis )?désolée?\b|je ne peux pas\b|lo siento\b|no puedo (?:ayudar|proporcionar|responder)|"
    r"(?:很|非常|十分)?(?:抱歉|遗憾|遺憾)|对不起|對不起|作为(?:一个|一名)?(?:ai|人工智能|语言模型)|我(?:无法|無法|不能)(?:回答|提供|帮助|協助|协助|完成|满足|生成|改写|分解)|"
    r"죄송|미안|(?:저는 )?(?:인공지능|ai)(?:로서|이므로)|[^?\n]{0,40}(?:도와드릴|제공할|답변할|답변드릴|생성할) 수 없|"
    r"申し訳|すみません|恐れ入りますが|[^?？\n]{0,40}(?:お手伝い|お答え|提供|回答|生成)(?:は|が|することは|することが)?できません)",
    re.IGNORECASE,
)


def refuses(text: str) -> bool:
    """Return whether a text is a model's refusal or apology, in the languages of the prompts and some more.

    >>> refuses("I'm sorry, but I can't help with that."), refuses("抱歉，我无法回答。"), refuses("I can't log in")
    (True, True, False)
    >>> refuses("The question cannot be decomposed further.")
    True
    """
    return _REFUSAL.match(text) is not None


def normalize_reply(reply: str) -> str:
    """Return the beginning and the end of a reply, in the usual form of each character, without bold type.

    >>> normalize_reply("**Score：７**")
    'Score:7'
    """
    text = strip_thoughts(reply)
    if len(text) > 2 * END:
        text = f"{text[:END]}\n{text[-END:]}"
    text = unicodedata.normalize("NFKC", text).replace("\u2212", "-")
    return re.sub(r"\*+|`+|~~|\\(?=\W)|(?<!\w)_+(?=\w)|(?<=\w)_+(?!\w)", "", text).strip()


@dataclass(frozen=True)
class Text(Parser[str]):
    """Parser of the whole reply, without blanks around and without the model's thought before it.

    >>> Text().parse("<think>Which one?</think> Nokia. ")
    'Nokia.'
    """

    def parse(self, reply: str) -> str:
        if not (text := strip_thoughts(reply)):
            raise ValueError("it must not be empty")
        return text


MARKER = re.compile(r"(?<!\s)\s*+\[\d{1,4}\]")
"""A mark that cites, with the blanks before it."""
_SIGNED = re.compile(r"(?<!\w)[-\u2212](?=\d)")


def plain_words(reply: str) -> str:
    """Return a reply without case, accents' other spellings, widths, punctuation and citation markers: equal for equal
    words.

    Letters, their marks, digits and symbols stay, in any script; a sign before a number does too.

    >>> plain_words("The café (Ｎokia).") == plain_words("the CAFE\\u0301 nokia [1]")
    True
    >>> plain_words("-5 °C"), plain_words("C++"), plain_words("「東京」。")
    ('−5 °c', 'c++', '東京')
    """
    text = unicodedata.normalize("NFKC", MARKER.sub("", reply)).casefold()
    text = _SIGNED.sub("\u2212", text)
    letters = (letter if unicodedata.category(letter)[0] in "LMNS" else " " for letter in text)
    return unicodedata.normalize("NFC", " ".join("".join(letters).split()))
