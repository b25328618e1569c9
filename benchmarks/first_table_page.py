"""benchmarks/results/first_table.md, made from the numbers of `benchmarks/first_table.py`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

# R@2, R@5, R@10 in percent, measured apart from this project, by flow: bm25s 0.3.16 with English stop words and no
# stemmer (over character bigrams where that was better), MiniLM with torch, their RRF with k = 60. Of aragog a
# passage of the right paper in the first 1, 2 and 5.
REFERENCE: Mapping[str, Mapping[str, Sequence[float]]] = {
    "xquad_en": {"bm25": (96.1, 98.5, 99.0), "dense": (94.8, 98.2, 98.9), "rank fusion": (98.0, 99.0, 99.5)},
    "xquad_es": {"bm25": (95.2, 97.3, 98.5)},
    "xquad_ar": {"bm25": (88.2, 93.2, 95.0)},
    "xquad_th": {"bm25": (91.0, 95.7, 97.2)},
    "xquad_zh": {"bm25": (96.4, 99.0, 99.1)},
    "korquad_dev": {"bm25": (96.2, 99.0, 99.3)},
    "arcd": {"bm25": (72.5, 83.2, 87.0)},
    "cmrc2018": {"bm25": (98.8, 99.4, 99.7)},
    "drcd": {"bm25": (94.3, 98.5, 99.6)},
    "pubmedqa": {"bm25": (97.0, 98.3, 98.6)},
    "squad2_dev": {"bm25": (87.6, 92.7, 95.4)},
    "squad_newwiki": {"bm25": (84.7, 90.2, 92.8)},
    "covid_qa": {"bm25": (58.3, 75.7, 84.1)},
    "cranfield": {"bm25": (12.7, 28.0, 37.0)},
    "cisi": {"bm25": (5.2, 8.3, 12.3)},
    "aragog": {"bm25": (82.7, 91.8, 95.9)},
    "musique": {"bm25": (38.9, 48.7, 57.6), "dense": (43.0, 56.5, 65.5), "rank fusion": (42.7, 56.3, 64.3)},
    "hotpotqa": {"bm25": (56.4, 73.3, 88.1), "dense": (60.6, 78.3, 86.1), "rank fusion": (60.3, 79.4, 90.0)},
    "2wikimultihopqa": {"bm25": (56.4, 65.7, 69.2)},
}
# The same, of questions of several hops all of whose passages are among the first 2, 5, 10.
REFERENCE_FULL: Mapping[str, Mapping[str, Sequence[float]]] = {
    "musique": {"bm25": (5.6, 12.8, 23.3), "dense": (8.3, 23.3, 35.6), "rank fusion": (6.1, 21.1, 32.8)},
    "hotpotqa": {"bm25": (23.9, 50.0, 76.7), "dense": (30.6, 61.7, 73.9), "rank fusion": (28.9, 60.0, 80.6)},
    "2wikimultihopqa": {"bm25": (19.9, 32.5, 37.5)},
}
PLAIN, OTHER_DRAW = "bm25 plain", 2**0.5
BESIDE = {
    PLAIN: "makes terms as the reference does: no stemmer, English stop words dropped, accents kept; on xquad_th pairs "
    "of\ncharacters that no vowel mark stands between.",
}
"""Flows that stand beside the others to tell what a difference comes from."""
SHOWN = ("nDCG@10", "R@1", "R@5", "R@10", "MRR")
Row = Mapping[str, Any]


def page(results: Row) -> str:
    """The page."""
    sets: Mapping[str, Row] = results["sets"]
    parts = [
        "# A first table",
        INTRODUCTION.format(questions=f"{results['questions']:,}", seed=results["seed"], sets=len(sets)),
        "## Retrieval",
        table(("set", "passages", "n", "flow", *SHOWN), scores(sets)),
        "\n".join([NOTES, *(f"`{flow}` {BESIDE[flow]}" for flow in BESIDE if _has_flow(sets, flow)), "", CHOSEN]),
        "## Which differences are shown",
        VERDICTS,
        table(("set", "nDCG@10"), verdicts(sets, "retrieval", "nDCG@10")),
        "## Against the reference",
        AGAINST,
        table(("set", "flow", "R@2", "R@5", "R@10", "reference", "agrees"), agreements(sets, REFERENCE, "R")),
        table(
            ("set", "flow", "full@2", "full@5", "full@10", "reference", "agrees"),
            agreements(sets, REFERENCE_FULL, "full"),
        ),
        "## Answers without a language model",
        QUOTED,
        table(("set", "n", "flow", "EM", "F1", "Acc"), answers(sets)),
        table(("set", "Acc"), verdicts(sets, "answers", "Acc")),
        "## What is not in it",
        MISSING,
        *left_out(sets),
        UNKNOWN,
        table(("set", "why"), unknown(sets)),
    ]
    return "\n\n".join(parts) + "\n"


def table(head: Sequence[str], rows: Iterator[Sequence[str]]) -> str:
    """A table of Markdown."""
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, ("---",) * len(head), *rows))


def scores(sets: Mapping[str, Row]) -> Iterator[Sequence[str]]:
    """Every flow on every set."""
    for name, row in sets.items():
        mark = " †" if row["retrieval"]["chosen_on"] else ""
        for flow, measures in row["retrieval"]["flows"].items():
            cell = f"**{flow}**" if row["default_is"].startswith(f"{flow}:") else flow
            yield (
                name + mark,
                f"{row['passages']:,}",
                f"{row['n']:,}",
                cell,
                *(_cell(measures[measure]) for measure in SHOWN),
            )


def verdicts(sets: Mapping[str, Row], part: str, *measures: str) -> Iterator[Sequence[str]]:
    """What is said of each pair that matters, on the first of the measures that a set has."""
    for name, row in sets.items():
        verdict_rows = row[part]["verdicts"] if row[part] else ()
        verdict_texts = [
            verdict_row["verdict"]
            for verdict_row in verdict_rows
            if verdict_row["measure"] in measures and _matters(*_pair(verdict_row))
        ]
        if verdict_texts:
            yield name, "<br>".join(verdict_texts)


def agreements(
    sets: Mapping[str, Row], references: Mapping[str, Mapping[str, Sequence[float]]], measure: str
) -> Iterator[Sequence[str]]:
    """Ours beside the reference, with what a difference comes from."""
    for name, row in sets.items():
        ks = [f"{measure}@{k}" for k in ((1, 2, 5) if name == "aragog" else (2, 5, 10))]
        flows = row["retrieval"]["flows"]
        for flow, reference in references.get(name, {}).items():
            if flow not in flows:
                continue
            ours = [flows[flow][figure] for figure in ks]
            disagreements = [
                not agrees(figure, reference_row, _is_drawn(row))
                for figure, reference_row in zip(ours, reference, strict=True)
            ]
            cells = [
                _cell(figure) + (" ≠" if differs else "") for figure, differs in zip(ours, disagreements, strict=True)
            ]
            reference_row = " / ".join(f"{figure:.1f}" for figure in reference)
            yield name, flow, *cells, reference_row, why(flow, row, ks, reference) if any(disagreements) else "yes"


def agrees(ours: Row, reference: float, is_drawn: bool) -> bool:
    """Whether the reference lies in our interval; in one √2 as wide where both are draws of a larger set."""
    wider = OTHER_DRAW if is_drawn else 1.0
    mean, low, high = (100 * ours[end] for end in ("mean", "low", "high"))
    return mean - wider * (mean - low) - 0.05 <= reference <= mean + wider * (high - mean) + 0.05


def why(flow: str, row: Row, ks: Sequence[str], reference: Sequence[float]) -> str:
    """What a difference comes from: how terms are made, where there is none with the reference's own."""
    flows = row["retrieval"]["flows"]
    if not flow.startswith("bm25") or PLAIN not in flows:
        return "no; why is not measured"
    plain = [flows[PLAIN][figure] for figure in ks]
    figures = " / ".join(f"{100 * figure['mean']:.1f}" for figure in plain)
    same = all(
        agrees(figure, reference_figure, _is_drawn(row))
        for figure, reference_figure in zip(plain, reference, strict=True)
    )
    if same:
        return f"no: how terms are made; `{PLAIN}` has {figures}, which agrees"
    return f"no; how terms are made does not explain all of it: `{PLAIN}` has {figures}"


def left_out(sets: Mapping[str, Row]) -> Iterator[str]:
    """What was not measured of a set."""
    if names := [name for name, row in sets.items() if "dense" not in row["retrieval"]["flows"]]:
        yield LEFT_OUT.format(names=", ".join(names), arguments=" ".join(names))


def unknown(sets: Mapping[str, Row]) -> Iterator[Sequence[str]]:
    """Sets whose language the embedder does not know, and why the flow `default` says so."""
    for name, row in sets.items():
        flow, _, reason = row["default_is"].partition(": ")
        if flow == "bm25":
            yield name, reason


def answers(sets: Mapping[str, Row]) -> Iterator[Sequence[str]]:
    """Answers quoted from passages."""
    for name, row in sets.items():
        for flow, measures in (row["answers"] or {"flows": {}})["flows"].items():
            cells = [_cell(measures[measure]) if measure in measures else "" for measure in ("EM", "F1", "Acc")]
            yield name + (" †" if row["answers"]["chosen_on"] else ""), f"{row['answers']['n']:,}", flow, *cells


def _has_flow(sets: Mapping[str, Row], flow: str) -> bool:
    return any(flow in row["retrieval"]["flows"] for row in sets.values())


def _is_drawn(row: Row) -> bool:
    """Whether both have drawn questions of a larger set; pubmedqa has just so many."""
    return row["n"] == 1000 and row["data"] != "pubmedqa"


def _pair(verdict: Row) -> tuple[str, str]:
    return verdict["better"], verdict["other"]


def _matters(ours: str, theirs: str) -> bool:
    """Each flow against bm25 (or what quotes from it), and hybrid against rank fusion."""
    pair = {ours, theirs}
    return pair.isdisjoint(BESIDE) and (
        pair == {"hybrid", "rank fusion"} or any(flow.startswith("bm25") for flow in pair)
    )


def _cell(interval: Row) -> str:
    mean, low, high = (100 * interval[end] for end in ("mean", "low", "high"))
    return f"{mean:.1f} [{low:.1f}, {high:.1f}]"


INTRODUCTION = """\
bm25, dense and hybrid on {sets} data sets, as they are by default, each number times 100 with its 95 % interval. At
most {questions} questions a set, as the reference has, drawn by seed {seed} among those with gold; passages are title
and text, and every flow finds 100 of them. Made by `python benchmarks/first_table.py`, which goes on where it was
stopped; all numbers and verdicts are in [first_table.json](first_table.json).
[Experiments](../../docs/how-to/experiments.md) explains intervals and verdicts,
[measures](../../docs/reference/measures.md) what is measured,
[data sets](../../docs/reference/data_sets.md) the forms."""
NOTES = """\
Bold: what the flow `default` is on this set, chosen by what the embedder knows and not by these numbers.
`rank fusion` is RRF with k = 60, `hybrid` adds z-scores half and half. Of aragog, which marks no passages, any passage
of the right paper is gold."""
CHOSEN = """\
† hybrid's normalisation and weight were chosen on all questions of this set, so that its numbers here are too good; so
are those of quotes where they were fitted. How words are cut was looked at on squad2_dev, xquad_en, xquad_es, xquad_th,
arcd, cmrc2018, drcd and korquad_dev, and when `default` is hybrid on xquad_es, xquad_ar and arcd: choices of a stemmer
or of n-grams, whose numbers stand in the code. Nothing else was tuned, and all parts of the sets are reported."""
VERDICTS = """\
Paired on the same questions: a difference is shown where its interval excludes zero and so does a permutation test,
after Holm's correction for all flows and measures of the set."""
AGAINST = """\
The reference was measured apart from this project. A number agrees where the reference lies in its interval (in one √2
as wide where both have drawn 1,000 of more questions). ≠ marks those that do not."""
QUOTED = """\
`quotes` are sentences of the passages found, word for word, about 40 words; no language model writes anything. With an
embedder (`hybrid > quotes`) each sentence that is read is embedded, about 25 a question, and so 150 of the questions,
drawn by the same seed, are answered, by all flows the same; pubmedqa, where nothing is embedded, answers all. So `EM`
is near zero and `F1` low by construction, and `Acc` says whether the answer stands in the reply. Yes or no cannot be
quoted: on pubmedqa nothing is measured of reading, and what says yes to everything stands there as the floor."""
MISSING = """\
bamboogle has no passages, policy_qa's questions are templates that fit many passages, and documents holds files for
readers. One question of cmrc2018 is empty and left out."""
LEFT_OUT = """\
{names}: searched by words only here, to save time. By vectors too: `python benchmarks/first_table.py {arguments}`."""
UNKNOWN = """\
On these sets the embedder does not know the language, as the flow `default` sees from their passages, so that dense and
what is made of it says nothing of dense search:"""
