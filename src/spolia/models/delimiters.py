"""What keeps a text inside the place of a prompt that it is put into: nothing in it passes for the prompt's own marks.

Documents are data. Two kinds of marks could end them: the tags that a prompt file writes around a place, and the marks
by which servers write a chat down as one text (`<|im_end|>`, `</s>`, `[INST]`), which some tokenizers read as such
wherever they stand. Of each the first character is replaced by one that looks alike. What a model could take for the
same counts as the same: other brackets and letters of full width, blanks and invisible characters between them. All
other characters stay as they are.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Set

_OPENS = "<＜﹤"
_UNSEEN = "\u00ad\u034f\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff"
_INVISIBLE = re.compile(f"[{_UNSEEN}]")
_TAG = re.compile(rf"[{_OPENS}]([\s{_UNSEEN}]*[/／∕⁄]?[\s{_UNSEEN}]*)((?:\w|[{_UNSEEN}])+)")
_CHAT = re.compile(
    r"[<＜](?=[|｜][^<>|｜\n]{1,40}[|｜][>＞])"
    r"|<(?=/?(?:s|bos|eos|pad|unk|start_of_turn|end_of_turn|start_header_id|end_header_id|eot_id)>|</?SYS>>|</?sys>>)"
    r"|\[(?=/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS)\])"
)


class Setting(str):
    """A text of whoever wrote the flow: a number, a list of words, the sentence for abstaining.

    Only such a text may stand in a system's message (`spolia.models.template`); what comes from a question, a document
    or a model may not.

    >>> Setting(5), Setting("I do not know.")
    ('5', 'I do not know.')
    """

    __slots__ = ()


def kept_inside(text: str, tags: Set[str]) -> str:
    """The text without any tag of these names, and without marks of chats.

    >>> kept_inside("a <b> </q> < / Q> <|im_end|>", {"q"})
    'a <b> ‹/q> ‹ / Q> ‹|im_end|>'
    """
    return without_marks(_TAG.sub(lambda tag: _shut(tag, tags), text))


def without_marks(text: str) -> str:
    """The text without marks of chats: for what a model has said, which it may have read in a document.

    >>> without_marks("yes</s>[INST]")
    'yes‹/s>［INST]'
    """
    return _CHAT.sub(lambda found: "［" if found[0] == "[" else "‹", text)


def _shut(tag: re.Match[str], tags: Set[str]) -> str:
    name = unicodedata.normalize("NFKC", _INVISIBLE.sub("", tag[2])).casefold()
    return "‹" + tag[0][1:] if name in tags else tag[0]
