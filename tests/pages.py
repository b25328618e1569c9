"""The parts of the pages that are made from the code and the measurements: `python -m tests.pages` writes them.

A page marks such a part with `<!-- made: NAME -->` and `<!-- end -->`; a test compares.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from spolia.cli.app import build_app
from spolia.cli.help_pages import default_text
from tests import catalogue_pages, training_pages

ROOT = Path(__file__).resolve().parents[1]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
PART = re.compile(r"(<!-- made: ([\w ]+) -->\n).*?(<!-- end -->)", re.S)
SHARED = 3
"""In so many commands an option is told once for all."""
COMMANDS: Any = build_app()


def fill_parts(text: str) -> str:
    """A page with its made parts as they should be."""
    return PART.sub(lambda part: part[1] + make_part(part[2]) + part[3], text)


def make_part(name: str) -> str:
    """The part of a name: a command, `exit codes`, `operators`, `addresses`, `measured` …"""
    makers = {
        "exit codes": exit_codes,
        "options": options,
        "operators": catalogue_pages.operators,
        "addresses": catalogue_pages.addresses,
        "measured": measured_rows,
        "rankers": training_pages.rankers,
        "classifiers": training_pages.classifiers,
        "span reader": training_pages.span_reader,
        "encoders": training_pages.encoders,
    }
    lines = makers[name]() if name in makers else command(name)
    return "\n".join(lines) + "\n"


def commands() -> list[str]:
    """The commands that help lists, and those that are under one name."""
    return [
        " ".join(filter(None, (name, inner)))
        for name in COMMANDS.list_commands(None)
        for inner in getattr(COMMANDS.get_command(None, name), "commands", [""])
    ]


def command(name: str) -> Iterator[str]:
    """What a command is for, its arguments and options; those that other commands have too are only named."""
    shared = {*map(_row, shared_options())}
    yield " ".join((_command(name).help or "").split())
    own = [param for param in _params(name) if _row(param) not in shared]
    if own:
        yield "\n| | | |\n|---|---|---|"
        for param in own:
            default = f"`{text}`" if (text := default_text(param)) else ""
            yield f"{_row(param)} {'required' if param.required else default} |"
    common = [param for param in _params(name) if _row(param) in shared]
    for verb, params in (
        ("Needs", [param for param in common if param.required]),
        ("Takes", [param for param in common if not param.required]),
    ):
        if params:
            yield f"\n{verb} {', '.join(f'`{param.opts[0]}`' for param in params)}."


def options() -> Iterator[str]:
    """The options that several commands have, each once."""
    yield "| | |\n|---|---|"
    yield from (_row(option) for option in shared_options())


def shared_options() -> list[Any]:
    """The options that three commands have, or more."""
    params = [param for name in commands() for param in _params(name) if param.param_type_name == "option"]
    counts = Counter(map(_row, params))
    first = {_row(param): param for param in reversed(params)}
    return [first[row] for row, count in counts.items() if count >= SHARED]


def _params(name: str) -> list[Any]:
    """Arguments, then options."""
    params = [param for param in _command(name).params if "--help" not in param.opts]
    return sorted(params, key=lambda one: one.param_type_name != "argument")


def _command(name: str) -> Any:
    command_group = COMMANDS
    for word in name.split():
        command_group = command_group.get_command(None, word)
    return command_group


def _row(param: Any) -> str:
    """How an argument or option is written, and what it is for."""
    if param.param_type_name == "argument":
        return f"| `{param.metavar}` | {param.help} |"
    value = "" if param.is_flag else f" {param.metavar}"
    return f"| {', '.join(f'`{opt}{value}`' for opt in [*param.opts, *param.secondary_opts])} | {param.help} |"


def exit_codes() -> Iterator[str]:
    """What every exit code says."""
    from spolia.cli.exit_codes import MEANING

    yield "| code | says |\n|---|---|"
    yield from (f"| {int(code)} | {meaning} |" for code, meaning in MEANING.items())


def measured_rows() -> Iterator[str]:
    """What the benchmarks found last, beside their peers."""
    steps, bm25, imports, install, ingest, embedding = (
        json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text())
        for name in ("steps", "bm25", "imports", "install", "ingest", "embedding")
    )
    own, peers, peer_medians, base = steps["spolia"], steps["peers"], bm25["peers_median_cpu_ms"], install["base"]
    extras = install["[pdf,office,embeddings]"]
    traced = own["run, journal on, flush included"]
    yield "| | Spolia | peers, on the same machine |\n|---|---|---|"
    yield (
        f"| a trivial step, CPU | {_two(own['run, journal off'])} µs; {_two(traced)} µs traced into SQLite "
        f"| Haystack {_two(peers['haystack'])} µs, LangChain {_two(peers['langchain'])} µs, "
        f"LlamaIndex {_two(peers['llamaindex'])} µs |"
    )
    yield (
        f"| BM25 over {bm25['passages']:,} passages, CPU a question | {_two(bm25['median_cpu_ms']['spolia'])} ms "
        f"| bm25s {_two(peer_medians['bm25s'])} ms, rank_bm25 {_two(peer_medians['rank_bm25'])} ms, "
        f"Haystack {_two(peer_medians['haystack'])} ms |"
    )
    separate = imports.get("peers_measured_apart", {})
    all_imports = imports | separate
    yield (
        f"| importing what the twenty lines above import, CPU | {_two(imports['the first import line of README'])} s "
        f"| Haystack {_two(all_imports['from haystack import Pipeline'])} s, "
        f"LlamaIndex {_two(all_imports['import llama_index.core'])} s{', measured apart' if separate else ''} |"
    )
    yield (
        f"| installation | {base['distributions']} distributions, {base['megabytes']:.0f} MB; with PDF, DOCX and "
        f"embeddings {extras['distributions']}, {extras['megabytes']:.0f} MB | |"
    )
    bare = f"a bare script of SQLite and tantivy {_two(ingest['floor']['files_per_cpu_s'])}"
    yield f"| indexing small files, words only | {_two(ingest['files_per_cpu_s'])} a CPU-second | {bare} |"
    yield from _documents()
    yield (
        f"| embedding with all-MiniLM-L6-v2 | {_two(embedding['passages_per_cpu_s'])} passages a CPU-second "
        f"| sentence-transformers {_two(embedding['peer']['passages_per_cpu_s'])} |"
    )
    missed = list(_missed_targets())
    yield (
        "\n**Targets we miss**\n\n| benchmark | number | measured | target |\n|---|---|---|---|"
        if missed
        else "\nEvery target is met."
    )
    yield from missed


def _missed_targets() -> Iterator[str]:
    """Yield a row for each number of a result that is beyond its limit."""
    for path in sorted((ROOT / "benchmarks" / "results").rglob("*.json")):
        result = json.loads(path.read_text())
        for part in result if isinstance(result, list) else [result]:
            for name, bounds in part.get("limit", {}).items():
                number = part["measured"][name]
                if number > bounds.get("at_most", number):
                    yield f"| `{path.stem}` | {name} | {number:,g} | ≤ {bounds['at_most']:,g} |"
                if number < bounds.get("at_least", number):
                    yield f"| `{path.stem}` | {name} | {number:,g} | ≥ {bounds['at_least']:,g} |"


def _documents() -> Iterator[str]:
    """The same folder indexed and asked, and vectors of real sentences."""
    documents, vectors, million = (
        json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text())
        for name in ("documents", "vectors", "million")
    )
    words, near = documents["bm25"], documents["cosine"]
    yield (
        f"| {documents['files']:,} files, until the first answer by words | {_two(words['spolia']['indexed_cpu_s'])} "
        f"CPU-s | LazyLLM {_two(words['lazyllm']['indexed_cpu_s'])} CPU-s |"
    )
    yield (
        f"| then a question over {words['spolia']['nodes']:,} nodes, by words; by cosine | "
        f"{_two(words['spolia']['question_cpu_ms']['p50'])} ms; {_two(near['spolia']['question_cpu_ms']['p50'])} ms "
        f"| LazyLLM {_two(words['lazyllm']['question_cpu_ms']['p50'])} ms; "
        f"{_two(near['lazyllm']['question_cpu_ms']['p50'])} ms |"
    )
    large = vectors["large"]
    yield (
        f"| the ten nearest of {large['sentences']:,} real sentences, in the index alone | "
        f"{_two(large['graph']['cpu_ms']['p50'])} ms, recall {large['graph']['recall']:.3f} | |"
    )
    many = million["1000000"]
    words, near, hybrid_p95, whole = (many[flow]["cpu_ms"]["p95"] for flow in million["p95_ratio"])
    yield (
        f"| a question to a whole store of {many['found at the end']['nodes']:,} nodes, p95: by words; by vectors of "
        f"{million['numbers_in_a_vector']} numbers; by both; embedding it as well | {_two(words)} ms; {_two(near)} ms; "
        f"{_two(hybrid_p95)} ms; {_two(whole)} ms | |"
    )


def _two(number: float) -> str:
    """A number to two significant digits."""
    short = f"{number:#.2g}"
    return f"{float(short):,.0f}" if "e" in short or short.endswith(".") else short


def main() -> None:
    for page in PAGES:
        text = page.read_text("utf-8")
        if fill_parts(text) != text:
            page.write_text(fill_parts(text), "utf-8")


if __name__ == "__main__":
    main()
