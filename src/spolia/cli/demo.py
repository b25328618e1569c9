"""What `make demo` shows: a folder indexed, three questions answered with citations, what to type next."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from spolia.cli.ask import ask
from spolia.cli.exits import Exit
from spolia.cli.guard import guarded
from spolia.cli.index import index
from spolia.cli.screen import Screen

OWN = ("What happens when a writer is killed?", "What does a cache entry hold?", "Who sees a restricted node?")
QUESTIONS, SHORTEST = 3, 12


def demo(folder: Annotated[str, typer.Argument(metavar="DIR")] = "docs") -> Exit:
    """Index a folder into `.demo/`, and ask it three questions: fixed ones of the project's docs, else its headings."""
    screen, source = Screen(), Path(folder)
    store = Path(".demo") / f"{source.resolve().name or 'root'}.spolia"
    screen.say(f"$ spolia index {folder} --store {store}", "bold")
    code = index(source, store)
    for question in questions(source, store):
        screen.say(f'\n$ spolia ask "{question}" --store {store}', "bold")
        ask(question, store=store)
    screen.say(
        f'\nNext:  spolia ask "…" --store {store}\n       spolia search "…" --store {store}\n       spolia --help'
    )
    return code


def questions(folder: Path, store: Path) -> list[str]:
    """Three questions that a folder should be able to answer."""
    if (folder / "run_contract.md").is_file():
        return list(OWN)
    found = list(dict.fromkeys(_subjects(store)))
    step = max(1, len(found) // QUESTIONS)
    return [f"What is said about {subject}?" for subject in found[::step][:QUESTIONS]]


def _subjects(store: Path) -> Iterator[str]:
    """Headings of the documents, or how their texts begin."""
    from spolia.cli.plain import one_line
    from spolia.stores.corpus import Corpus

    for document in Corpus(str(store)).snapshot().documents():
        headings = [one_line(heading.text, 80).replace('"', "'") for heading in document.headings]
        named = [heading for heading in headings if len(heading) >= SHORTEST]
        if named or document.text.strip():
            yield named[len(named) // 2] if named else " ".join(document.text.split()[:8])


if __name__ == "__main__":
    typer.run(guarded(demo))
