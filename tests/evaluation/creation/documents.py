"""A few documents, and a scripted model that writes questions about them: the same prompt gets the same reply."""

from __future__ import annotations

from pathlib import Path

from spolia import Corpus, ScriptedModel, sync
from spolia.models.prompting.stand_in_models import Script

TEXTS = {
    "ann.txt": "The painter Ann Bellson was born in Garholm in 1871, as the third child of a family of sailors.",
    "garholm.txt": "The mayor of the small town of Garholm is Cyr Dorlan, who was elected twice by its citizens.",
    "salt.txt": "Salt was dug in the mines of Keld for eight centuries, and miners were paid in salt until 1790.",
    "tide.txt": "The tide is caused by the pull of the moon, and it is highest at new moon and at full moon.",
}
WRITES, POINTS, ANSWERS, JUDGES, EVOLVES, JOINS, LACKS = (
    r"(?s)You write one question that the passage answers.*",
    r"(?s)You judge whether a question can be understood.*",
    r"(?s)You answer a question from the passages alone.*",
    r"(?s)You check an answer to a question.*",
    r"(?s)You make a question harder.*",
    r"(?s)You write one question that needs all of the passages.*",
    r"(?s)You write one question that fits the subject.*",
)
WRITTEN: Script = (
    (WRITES + "Ann Bellson", "When was Ann Bellson born?"),
    (WRITES + "mayor of the small town", "Who leads the town of Garholm?"),
    (WRITES + "Salt was dug", "What does the passage say about salt?"),
    (WRITES + "The tide", "When is it highest?"),
    (POINTS + "When is it highest", "No."),
    (POINTS, "Yes."),
    (ANSWERS + "<question>When was Ann Bellson born",
     "Answer: 1871\nQuotes:\nThe painter Ann Bellson was born in Garholm in 1871"),
    (ANSWERS + "<question>Who leads the town of Garholm", "I do not know."),
    (JUDGES, "yes"),
)  # fmt: skip
"""Of the four passages one makes a question that is kept; the others are dropped for three reasons."""


def model(*first: tuple[str, ...]) -> ScriptedModel:
    """The scripted model, with further replies before its own."""
    return ScriptedModel((*first, *WRITTEN))


def store(folder: Path) -> Corpus:
    """The documents, indexed."""
    (folder / "docs").mkdir()
    for name, text in TEXTS.items():
        (folder / "docs" / name).write_text(text)
    corpus = Corpus(folder / "notes.spolia")
    sync(folder / "docs", corpus)
    return corpus
