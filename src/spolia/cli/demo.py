"""What `make demo` shows: a folder indexed, three questions answered with citations, what to type next."""

import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from spolia.cli.commands.ask import ask
from spolia.cli.commands.index import index
from spolia.cli.exit_codes import Exit, guarded
from spolia.cli.options import SearchOptions
from spolia.cli.screen import Screen, one_line
from spolia.cli.store_options import StoreOptions

OWN = (
    "What ends a loop when the budget is spent?",
    "What happens to a store when the writer is killed?",
    "Why is a moved file free?",
)
QUESTIONS, TRIED, SHORTEST = 3, 12, 12
PUNCTUATION = ".:;,?! "


def demo(folder: Annotated[str, typer.Argument(metavar="DIR")] = "docs") -> Exit:
    """Index a folder into `.demo/`, and ask it three questions: fixed ones of the project's docs, else its headings."""
    screen, source = Screen(), Path(folder)
    store = str(Path(".demo") / f"{_slug(source)}.spolia")
    screen.show(f"$ spolia index {folder} --store {store}")
    index(StoreOptions(store, [str(source)]))
    for question in questions(source, store):
        screen.show(f'\n$ spolia ask "{question}" --store {store}')
        ask(SearchOptions(question), store=store)
    screen.show(
        f"\nNext:  source {Path(sys.prefix, 'bin', 'activate')}\n"
        f'       spolia ask "…" --store {store}\n       spolia search "…" --store {store}\n       spolia --help'
    )
    return Exit.DONE


def _slug(folder: Path) -> str:
    """A name for the store of a folder: two folders of the same name have two stores."""
    parts = folder.parts if folder.parts and ".." not in folder.parts else folder.resolve().parts
    return "-".join(part.strip("/") for part in parts if part.strip("/"))[-100:] or "root"


def questions(folder: Path, store: str) -> list[str]:
    """Three questions that a folder answers: of those tried, the ones with an answer first."""
    if (folder / "contributing" / "run_contract.md").is_file():
        return list(OWN)
    from spolia.cli.flow_parts import flow_of, parts_of
    from spolia.run import Run
    from spolia.types import Answer, Query

    tried = [subject.rstrip(PUNCTUATION) for subject in islice(dict.fromkeys(_subjects(store)), TRIED)]
    with Run():
        answers = flow_of("naive", parts_of(store))[0].batch([Query(question) for question in tried])
    pairs = list(zip(tried, answers, strict=True))
    answered = [question for question, answer in pairs if isinstance(answer, Answer) and not answer.abstained]
    return list(dict.fromkeys([*answered, *tried]))[:QUESTIONS]


def _subjects(store: str) -> Iterator[str]:
    """A heading of each document, the longest document first; then how the texts without headings begin."""
    from spolia.stores.corpus import Corpus

    documents = sorted(Corpus(str(store)).snapshot().documents(), key=lambda document: -len(document.text))
    plain: list[str] = []
    for document in documents:
        headings = [one_line(heading.text, 80).replace('"', "'") for heading in document.headings]
        named = [heading for heading in headings if len(heading) >= SHORTEST]
        if named:
            yield named[len(named) // 2]
        elif document.text.strip():
            plain.append(one_line(" ".join(document.text.split()[:8])).replace('"', "'"))
    yield from plain


if __name__ == "__main__":
    typer.run(guarded(demo))
