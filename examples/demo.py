"""Index a folder and answer three questions from it, with citations: what `make demo` runs.

python examples/demo.py [DIR]
"""

from __future__ import annotations

import shlex
import sys
import textwrap
import time
from pathlib import Path

from spolia import Answer, Corpus, MiniLM, Query, Run, sync
from spolia.errors import SpoliaError, WeightsError
from spolia.flows.builtin import naive
from spolia.flows.default import choose
from spolia.models.protocols import Embedder

ROOT = Path(__file__).resolve().parents[1]
QUESTIONS = (
    "What ends a loop when the budget is spent?",
    "What happens to a store when the writer is killed?",
    "Why is a moved file free?",
)
"""About the project's own docs; other folders are asked about their own headings."""
TRIED = 30


def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "docs").resolve()
    store = ROOT / ".demo" / f"{folder.name}.spolia"
    store.parent.mkdir(exist_ok=True)
    embedder = weights()
    began = time.perf_counter()
    report = sync(folder, corpus := Corpus(str(store)), embedder=embedder)
    for uri, reason in report.failed:
        print(f"  not indexed: {uri}: {reason}")
    documents = report.added + report.changed + report.moved + report.unchanged
    print(f"Indexed {documents} documents of {folder} in {time.perf_counter() - began:.1f} s.")
    print(f"Search is {choose(corpus, embedder)[1]}.")
    flow = naive(corpus, embedder)
    answered: list[str] = []
    with Run() as run:
        for question in questions(folder, corpus):
            answer = run(flow, Query(question))
            if not answer.abstained and len(answered) < 3:
                show(question, answer)
                answered.append(question)
    say_what_next(store, answered[0] if answered else "YOUR QUESTION")


def weights() -> Embedder | None:
    """The embedder, if its weights are installed; search by words alone does without."""
    embedder = MiniLM()
    try:
        embedder.embed(["ready?"], kind="query")
    except (WeightsError, ImportError) as error:
        print(f"No embedder, so search is by words alone: {error}")
        return None
    return embedder


def questions(folder: Path, corpus: Corpus) -> tuple[str, ...]:
    """What to ask: headings of two words and more are what a folder says that it answers."""
    if folder == ROOT / "docs":
        return QUESTIONS
    documents = corpus.snapshot().documents()
    topics = [topic for document in documents for topic in (document.title, *(h.text for h in document.headings))]
    return tuple(topic for topic in dict.fromkeys(topics) if len(topic.split()) > 1)[:TRIED]


def show(question: str, answer: Answer) -> None:
    """A question, its answer, and the passages that it rests on."""
    print(f"\n\033[1m{question}\033[0m" if sys.stdout.isatty() else f"\n{question}")
    print(textwrap.fill(answer.text, 100, initial_indent="  ", subsequent_indent="  "))
    for citation in answer.citations:
        quote = textwrap.shorten(" ".join(citation.quote.split()), 160, placeholder=" …")
        print(f"    [{citation.marker}] {citation.place}: “{quote}”")


def say_what_next(store: Path, question: str) -> None:
    """Commands to go on with."""
    at = shlex.quote(str(store.relative_to(Path.cwd()) if store.is_relative_to(Path.cwd()) else store))
    command = shlex.quote(str(Path(sys.executable).parent / "spolia"))
    print(f"\nNext:\n  {command} ask {shlex.quote(question)} --store {at}")
    print(f"  {command} search 'published generation' --store {at} --top-k 3")
    print("  make demo DIR=path/to/your/documents")


if __name__ == "__main__":
    try:
        main()
    except SpoliaError as error:
        sys.exit(f"{type(error).__name__}: {error}")
