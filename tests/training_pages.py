"""The tables of docs/reference/trained_parts.md, from benchmarks/results/."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parents[1] / "benchmarks" / "results"
SETS = {"musique": "MuSiQue", "hotpotqa": "HotpotQA", "2wikimultihopqa": "2WikiMultihopQA"}
WAYS = {
    "BM25": "BM25",
    "MiniLM": "MiniLM",
    "RRF": "RRF",
    "graph": "PageRank over shared names",
    "hand weights": "weights by hand",
    "own questions, one pass": "*own*, one pass",
    "own questions": "*own*, two passes",
    "boosted trees": "*own*, boosted trees",
    "other sets": "*others*",
    "ten questions, one pass": "ten of its own questions",
    "random gold": "*random gold*",
}


def read(name: str) -> Any:
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else None


def interval(bounds: dict[str, float]) -> str:
    """A mean with its interval where it has one."""
    return f"{bounds['mean']:.1f}" + (f" [{bounds['low']:.1f}, {bounds['high']:.1f}]" if "low" in bounds else "")


def rankers() -> Iterator[str]:
    """R@5 by set and way, all gold in the best ten, the merged pool, single hops and cost."""
    result = read("training/ranker")
    own, merged, cost = result["own_pools"], result["merged_pool"], result["cost"]
    yield f"| R@5 | {' | '.join(SETS.values())} |"
    yield f"|---|{'---|' * len(SETS)}"
    for way, title in WAYS.items():
        scored = [interval(own[name][way]["R@5"]) if way in own[name] else "not measured" for name in SETS]
        if set(scored) != {"not measured"}:
            yield f"| {title} | {' | '.join(scored)} |"
    for way in ("RRF", "own questions", "other sets"):
        cells = (interval(merged[name][way]["R@5"]) for name in SETS)
        pool = f"{cost['question']['merged']['passages']:,} passages"
        yield f"| {WAYS[way]}, in one pool of {pool} | {' | '.join(cells)} |"
    for way in ("RRF", "own questions", "other sets"):
        cells = (f"{own[name][way]['all@10']:.1f}" for name in SETS)
        yield f"| all gold in the best ten, {WAYS[way]} | {' | '.join(cells)} |"
    single = result["single_hop"]
    yield (
        f"\\nQuestions of one hop (xquad_en, R@1): {single['learned']['mean']:.1f}, hybrid "
        f"{single['hybrid']['mean']:.1f}; difference {interval(single['difference'])}. Training on "
        f"{cost['trained_on']} questions takes {cost['training_cpu_s']:.1f} CPU-s with the features; the weights have "
        f"{cost['bytes'] / 1000:.1f} kB."
    )
    sizes = ", ".join(
        f"{size['question_cpu_ms']:.1f} ms over {size['passages']:,}"
        for size in read("training/ranker_growth")["sizes"]
    )
    yield f"\nCPU of a question beyond hybrid search, by passages: {sizes}."


def classifiers() -> Iterator[str]:
    """What ends chains of CoRAG, and what the other classifiers come to."""
    result = read("sufficiency")
    yield "| chains of CoRAG | EM | F1 | tokens (ATC) | saved | EM lost | accuracy | AUC | end after 1, 2, 3, 4, 5, 6 |"
    yield f"|---|{'---|' * 8}"
    for name, part in result["sets"].items():
        for size, figures in part["policies"].items():
            lengths = ", ".join(str(figures["chain_lengths"].get(str(index), 0)) for index in range(1, 7))
            cells = (f"{figures['accuracy']:.1f}", f"{figures['AUC']:.3f}") if "AUC" in figures else ("", "")
            mean, low, high = (-part or 0.0 for part in figures["EM_change"])
            yield (
                f"| {SETS[name]}, {size} | {figures['EM']} | {figures['F1']} | {figures['ATC']:,} | "
                f"{figures['tokens_saved']:.1f} % | {mean:.1f} [{high:.1f}, {low:.1f}] | {' | '.join(cells)} "
                f"| {lengths} |"
            )
    yield from _by_length(result)
    parts = read("training/classifiers")["parts"]
    yield "\n| part | inputs | accuracy | most frequent label | EM of the flow, trained | EM without |"
    yield "|---|---|---|---|---|---|"
    for name, part in parts.items():
        base = next(flow for flow in ("none", "several") if flow in part["flow"])
        for size, figures in part["sizes"].items():
            mean, low, high = figures["accuracy"]
            ems = f"{part['flow'][f'trained, {size}']['EM']} | {part['flow'][base]['EM']} ({base})"
            yield f"| {name} | {size} | {mean} [{low}, {high}] | {figures['most_frequent_label']} | {ems} |"


def _by_length(result: Any) -> Iterator[str]:
    """EM and tokens of chains of at most L pairs."""
    lengths_by_size = [
        (f"{SETS[name]}, {size}", policy_row["lengths"])
        for name, part in result["sets"].items()
        for size, policy_row in part["policies"].items()
        if "lengths" in policy_row
    ]
    if lengths_by_size:
        yield "\n| EM / F1 / ATC, at most L pairs | 1 | 2 | 3 | 4 | 5 | 6 |"
        yield f"|---|{'---|' * 6}"
    for name, lengths in lengths_by_size:
        cells = (f"{part['EM']} / {part['F1']} / {part['ATC']:,}" for part in lengths.values())
        yield f"| {name} | {' | '.join(cells)} |"
    if lengths_by_size:
        yield "\nThe cap C of the published classifier counts the same pairs: its column is min(L, C)."


def span_reader() -> Iterator[str]:
    """What `SpanReader` answers of xquad_en."""
    if (result := read("training/reader")) is None:
        return
    data, scores = result["data"], result["scores"]
    minutes = result["training"]["cost"]["steps_cpu_s"] / 60
    yield "\n## Span reader\n"
    yield (
        f"{data['questions']} questions of xquad_en over all of its {data['paragraphs']} paragraphs; trained on other "
        f"articles, {result['training']['steps']['made']:,} steps in {minutes:.1f} CPU-minutes. A question takes "
        f"{result['cpu_ms_a_question']:.0f} CPU-ms.\n"
    )
    yield "| | EM | F1 |"
    yield "|---|---|---|"
    for name, score in scores.items():
        cells = (
            interval({part: 100 * value for part, value in score[measure].items() if part != "n"})
            for measure in ("EM", "F1")
        )
        yield f"| {name} | {' | '.join(cells)} |"


def encoders() -> Iterator[str]:
    """What parts made of MiniLM add on questions that were kept apart, and what language models learn of rows."""
    if (result := read("training/encoders")) is not None:
        yield "\n## Encoders\n"
        yield "| part | trained and scored on | measure | untrained | trained | difference | steps | CPU-s |"
        yield f"|---|{'---|' * 7}"
        cut = list[str]()
        for name, part in result["parts"].items():
            score, count = part["score"], part["questions"]
            cells = (interval({key: 100 * score[way][key] for key in BOUNDS}) for way in OF)
            cut += [f"`{name}`: {note}" for note in part["notes"] if "had not converged" in note]
            yield (
                f"| `{name}` | {part['data']}, {count['train']} and {count['kept_apart']} | {score['measure']} | "
                f"{' | '.join(cells)} | {part['steps']['made']} | {sum(part['cost'].values()):.0f} |"
            )
        yield "\n" + " ".join(cut)
    if (result := read("training/language_model")) is not None:
        yield "\n## Language models\n"
        yield (
            f"A model with random weights and 16 numbers a token, {result['steps']} steps on rows with the words of "
            "the simulated reader: ln P of a token of the replies to other questions.\n"
        )
        yield "| rows | method | before | after | difference | questions |"
        yield "|---|---|---|---|---|---|"
        for name, part in result["kinds"].items():
            gain = part["gain"]
            change = f"{gain['mean']:+.2f} [{gain['low']:+.2f}, {gain['high']:+.2f}]"
            ends = f"{part['before']:.2f} | {part['after']:.2f}"
            yield f"| {name} | {part['method']} | {ends} | {change} | {part['questions_kept_apart']} |"


BOUNDS, OF = ("mean", "low", "high"), ("untrained", "trained", "difference")
