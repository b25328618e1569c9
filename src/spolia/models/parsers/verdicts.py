"""Parsers of verdicts with their reasons."""

from dataclasses import dataclass

from spolia.models.parsers.parser import LONGEST, Parser, extract_thought, strip_thoughts
from spolia.models.parsers.tags import Tags
from spolia.models.parsers.words import YesNo

_TAGS = Tags(optional=("analysis",), one_of=("verdict",))


@dataclass(frozen=True)
class Reasoned(Parser[tuple[bool, str]]):
    """Parser of yes or no in `<verdict>`, and the analysis before it: that in its tag, else the model's thought; may be
    empty.

    A reply without the tag is a verdict as `YesNo` reads it.

    >>> Reasoned().parse("<analysis>No town was known, and it names one.</analysis><verdict>Yes</verdict>")
    (True, 'No town was known, and it names one.')
    >>> Reasoned().parse("<think>It names no town.</think>No."), Reasoned().parse("yes")
    ((False, 'It names no town.'), (True, ''))
    """

    @property
    def form(self) -> str:
        return "<analysis>...</analysis><verdict>yes or no</verdict>"

    @property
    def reads_thoughts(self) -> bool:
        return True

    def parse(self, reply: str) -> tuple[bool, str]:
        try:
            texts = _TAGS.parse(reply)
        except ValueError:
            *analysis, rest = strip_thoughts(reply[:LONGEST]).rsplit("</analysis>", 1)
            texts = {"verdict": rest} | (
                {"analysis": analysis[0].replace("<analysis>", "").strip()} if analysis else {}
            )
        return YesNo().parse(texts.get("verdict", "")), texts.get("analysis") or extract_thought(reply[:LONGEST])
