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


def interval(row: dict[str, float]) -> str:
    """A mean with its interval where it has one."""
    return f"{row['mean']:.1f}" + (f" [{row['low']:.1f}, {row['high']:.1f}]" if "low" in row else "")


def rankers() -> Iterator[str]:
    """R@5 by set and way, all gold in the best ten, the merged pool, single hops and cost."""
    data = read("training/ranker")
    own, merged, cost = data["own_pools"], data["merged_pool"], data["cost"]
    yield f"| R@5 | {' | '.join(SETS.values())} |"
    yield f"|---|{'---|' * len(SETS)}"
    for way, row_of_way in WAYS.items():
        scored = [interval(own[name][way]["R@5"]) if way in own[name] else "not measured" for name in SETS]
        if set(scored) != {"not measured"}:
            yield f"| {row_of_way} | {' | '.join(scored)} |"
    for way in ("RRF", "own questions", "other sets"):
        cells = (interval(merged[name][way]["R@5"]) for name in SETS)
        pool = f"{cost['question']['merged']['passages']:,} passages"
        yield f"| {WAYS[way]}, in one pool of {pool} | {' | '.join(cells)} |"
    for way in ("RRF", "own questions", "other sets"):
        cells = (f"{own[name][way]['all@10']:.1f}" for name in SETS)
        yield f"| all gold in the best ten, {WAYS[way]} | {' | '.join(cells)} |"
    single = data["single_hop"]
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
    data = read("sufficiency")
    yield "| chains of CoRAG | EM | F1 | tokens (ATC) | saved | EM lost | accuracy | AUC | end after 1, 2, 3, 4, 5, 6 |"
    yield f"|---|{'---|' * 8}"
    for name, item in data["sets"].items():
        for size, figures in item["policies"].items():
            lengths = ", ".join(str(figures["chain_lengths"].get(str(index), 0)) for index in range(1, 7))
            texts = (f"{figures['accuracy']:.1f}", f"{figures['AUC']:.3f}") if "AUC" in figures else ("", "")
            mean, low, high = (-item or 0.0 for item in figures["EM_change"])
            yield (
                f"| {SETS[name]}, {size} | {figures['EM']} | {figures['F1']} | {figures['ATC']:,} | "
                f"{figures['tokens_saved']:.1f} % | {mean:.1f} [{high:.1f}, {low:.1f}] | {' | '.join(texts)} "
                f"| {lengths} |"
            )
    yield from _by_length(data)
    parts = read("training/classifiers")["parts"]
    yield "\n| part | inputs | accuracy | most frequent label | EM of the flow, trained | EM without |"
    yield "|---|---|---|---|---|---|"
    for name, item in parts.items():
        base = next(flow for flow in ("none", "several") if flow in item["flow"])
        for size, figures in item["sizes"].items():
            mean, low, high = figures["accuracy"]
            ems = f"{item['flow'][f'trained, {size}']['EM']} | {item['flow'][base]['EM']} ({base})"
            yield f"| {name} | {size} | {mean} [{low}, {high}] | {figures['most_frequent_label']} | {ems} |"


def _by_length(data: Any) -> Iterator[str]:
    """EM and tokens of chains of at most L pairs."""
    all_values = [
        (f"{SETS[name]}, {size}", policy_row["lengths"])
        for name, item in data["sets"].items()
        for size, policy_row in item["policies"].items()
        if "lengths" in policy_row
    ]
    if all_values:
        yield "\n| EM / F1 / ATC, at most L pairs | 1 | 2 | 3 | 4 | 5 | 6 |"
        yield f"|---|{'---|' * 6}"
    for name, lengths in all_values:
        cells = (f"{item['EM']} / {item['F1']} / {item['ATC']:,}" for item in lengths.values())
        yield f"| {name} | {' | '.join(cells)} |"
    if all_values:
        yield "\nThe cap C of the published classifier counts the same pairs: its column is min(L, C)."


def span_reader() -> Iterator[str]:
    """What `SpanReader` answers of xquad_en."""
    if (found_data := read("training/reader")) is None:
        return
    data, scores = found_data["data"], found_data["scores"]
    minutes = found_data["training"]["cost"]["steps_cpu_s"] / 60
    yield "\n## Span reader\n"
    yield (
        f"{data['questions']} questions of xquad_en over all of its {data['paragraphs']} paragraphs; trained on other "
        f"articles, {found_data['training']['steps']['made']:,} steps in {minutes:.1f} CPU-minutes. A question takes "
        f"{found_data['cpu_ms_a_question']:.0f} CPU-ms.\n"
    )
    yield "| | EM | F1 |"
    yield "|---|---|---|"
    for name, score in scores.items():
        cells = (
            interval({part: 100 * value for part, value in score[text].items() if part != "n"}) for text in ("EM", "F1")
        )
        yield f"| {name} | {' | '.join(cells)} |"


def encoders() -> Iterator[str]:
    """What parts made of MiniLM add on questions that were kept apart, and what language models learn of rows."""
    if (data := read("training/encoders")) is not None:
        yield "\n## Encoders\n"
        yield "| part | trained and scored on | measure | untrained | trained | difference | steps | CPU-s |"
        yield f"|---|{'---|' * 7}"
        cut = list[str]()
        for name, item in data["parts"].items():
            score, count = item["score"], item["questions"]
            cells = (interval({key: 100 * score[part_row][key] for key in BOUNDS}) for part_row in OF)
            cut += [f"`{name}`: {note}" for note in item["notes"] if "had not converged" in note]
            yield (
                f"| `{name}` | {item['data']}, {count['train']} and {count['kept_apart']} | {score['measure']} | "
                f"{' | '.join(cells)} | {item['steps']['made']} | {sum(item['cost'].values()):.0f} |"
            )
        yield "\n" + " ".join(cut)
    if (data := read("training/language_model")) is not None:
        yield "\n## Language models\n"
        yield (
            f"A model with random weights and 16 numbers a token, {data['steps']} steps on rows with the words of the "
            "simulated reader: ln P of a token of the replies to other questions.\n"
        )
        yield "| rows | method | before | after | difference | questions |"
        yield "|---|---|---|---|---|---|"
        for name, item in data["kinds"].items():
            gain = item["gain"]
            change = f"{gain['mean']:+.2f} [{gain['low']:+.2f}, {gain['high']:+.2f}]"
            ends = f"{item['before']:.2f} | {item['after']:.2f}"
            yield f"| {name} | {item['method']} | {ends} | {change} | {item['questions_kept_apart']} |"


BOUNDS, OF = ("mean", "low", "high"), ("untrained", "trained", "difference")
