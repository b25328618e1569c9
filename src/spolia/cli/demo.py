"""`make demo`: folders indexed, three questions answered with citations, and what to type next."""

import sys
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Annotated

from spolia.cli.commands.ask import ask
from spolia.cli.commands.index import index
from spolia.cli.exit_codes import Exit
from spolia.cli.flow_parts import build_parts, load_flow
from spolia.cli.options import SearchOptions
from spolia.cli.parameters import argument, command
from spolia.cli.screen import Screen, one_line
from spolia.cli.store_options import StoreOptions
from spolia.run import Run
from spolia.stores.corpus import Corpus
from spolia.types import Answer, Query

DOCS = ("docs/how-to", "docs/concepts")
"""The pages that a newcomer reads. The reference, two fifths of the text, is not indexed."""
FIXED_QUESTIONS = (
    "What happens to a store if the process is killed?",
    "What does a moved file cost?",
    "Who may find documents without readers?",
)
QUESTIONS, MAX_TRIED, MIN_CHARACTERS = 3, 12, 12
PUNCTUATION = ".:;,?! "


def demo(folders: Annotated[list[str] | None, argument("DIR", "")] = None) -> Exit:
    """Index folders into `.demo/`, and ask three questions: fixed ones of the project's docs, else their headings."""
    screen, sources = Screen(), tuple(folders or DOCS)
    # File systems allow 255 bytes.
    store = str(Path(".demo") / f"{'-'.join(_slug(Path(folder)) for folder in sources)[-100:]}.spolia")
    screen.show(f"$ spolia index {' '.join(sources)} --store {store}")
    index(StoreOptions(store, list(sources)))
    for question in choose_questions(sources, store):
        screen.show(f'\n$ spolia ask "{question}" --store {store}')
        ask(SearchOptions(question), store=store)
    screen.show(
        f"\nNext:  source {Path(sys.prefix, 'bin', 'activate')}\n"
        f'       spolia ask "…" --store {store}\n       spolia search "…" --store {store}\n       spolia --help'
    )
    return Exit.DONE


def _slug(folder: Path) -> str:
    """Return a store's name for a folder; two folders of the same name get two stores."""
    parts = folder.parts if folder.parts and ".." not in folder.parts else folder.resolve().parts
    return "-".join(part.strip("/") for part in parts if part.strip("/")) or "root"


def choose_questions(folders: Sequence[str], store: str) -> list[str]:
    """Return three questions that the folders answer; those without an answer come last."""
    if tuple(folders) == DOCS:
        return list(FIXED_QUESTIONS)

    tried = [subject.rstrip(PUNCTUATION) for subject in islice(dict.fromkeys(_list_subjects(store)), MAX_TRIED)]
    with Run():
        answers = load_flow("naive", build_parts(store))[0].batch([Query(question) for question in tried])
    pairs = list(zip(tried, answers, strict=True))
    answered_questions = [question for question, answer in pairs if isinstance(answer, Answer) and not answer.abstained]
    return list(dict.fromkeys([*answered_questions, *tried]))[:QUESTIONS]


def _list_subjects(store: str) -> Iterator[str]:
    """Yield a heading of each document, the longest document first, then the first words of texts without headings."""
    documents = sorted(Corpus(str(store)).snapshot().documents(), key=lambda document: -len(document.text))
    plain: list[str] = []
    for document in documents:
        headings = [one_line(heading.text, 80).replace('"', "'") for heading in document.headings]
        long_headings = [heading for heading in headings if len(heading) >= MIN_CHARACTERS]
        if long_headings:
            yield long_headings[len(long_headings) // 2]
        elif document.text.strip():
            plain.append(one_line(" ".join(document.text.split()[:8])).replace('"', "'"))
    yield from plain


if __name__ == "__main__":
    command("demo", demo)()
