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


def interval(one: dict[str, float]) -> str:
    """A mean with its interval where it has one."""
    return f"{one['mean']:.1f}" + (f" [{one['low']:.1f}, {one['high']:.1f}]" if "low" in one else "")


def rankers() -> Iterator[str]:
    """R@5 by set and way, all gold in the best ten, the merged pool, single hops and cost."""
    found = read("training/ranker")
    own, merged, cost = found["own_pools"], found["merged_pool"], found["cost"]
    yield f"| R@5 | {' | '.join(SETS.values())} |"
    yield f"|---|{'---|' * len(SETS)}"
    for way, said in WAYS.items():
        scored = [interval(own[name][way]["R@5"]) if way in own[name] else "not measured" for name in SETS]
        if set(scored) != {"not measured"}:
            yield f"| {said} | {' | '.join(scored)} |"
    for way in ("RRF", "own questions", "other sets"):
        cells = (interval(merged[name][way]["R@5"]) for name in SETS)
        pool = f"{cost['question']['merged']['passages']:,} passages"
        yield f"| {WAYS[way]}, in one pool of {pool} | {' | '.join(cells)} |"
    for way in ("RRF", "own questions", "other sets"):
        cells = (f"{own[name][way]['all@10']:.1f}" for name in SETS)
        yield f"| all gold in the best ten, {WAYS[way]} | {' | '.join(cells)} |"
    single = found["single_hop"]
    yield (
        f"\\nQuestions of one hop (xquad_en, R@1): {single['learned']['mean']:.1f}, hybrid "
        f"{single['hybrid']['mean']:.1f}; difference {interval(single['difference'])}. Training on "
        f"{cost['trained_on']} questions takes {cost['training_cpu_s']:.1f} CPU-s with the features; the weights have "
        f"{cost['bytes'] / 1000:.1f} kB."
    )
    sizes = ", ".join(
        f"{one['question_cpu_ms']:.1f} ms over {one['passages']:,}" for one in read("training/ranker_growth")["sizes"]
    )
    yield f"\nCPU of a question beyond hybrid search, by passages: {sizes}."


def classifiers() -> Iterator[str]:
    """What ends chains of CoRAG, and what the other classifiers come to."""
    found = read("sufficiency")
    yield "| chains of CoRAG | EM | F1 | tokens (ATC) | saved | EM lost | accuracy | AUC | end after 1, 2, 3, 4, 5, 6 |"
    yield f"|---|{'---|' * 8}"
    for name, one in found["sets"].items():
        for size, told in one["policies"].items():
            lengths = ", ".join(str(told["chain_lengths"].get(str(at), 0)) for at in range(1, 7))
            how = (f"{told['accuracy']:.1f}", f"{told['AUC']:.3f}") if "AUC" in told else ("", "")
            mean, low, high = (-one or 0.0 for one in told["EM_change"])
            yield (
                f"| {SETS[name]}, {size} | {told['EM']} | {told['F1']} | {told['ATC']:,} | "
                f"{told['tokens_saved']:.1f} % | {mean:.1f} [{high:.1f}, {low:.1f}] | {' | '.join(how)} | {lengths} |"
            )
    yield from _by_length(found)
    parts = read("training/classifiers")["parts"]
    yield "\n| part | inputs | accuracy | most frequent label | EM of the flow, trained | EM without |"
    yield "|---|---|---|---|---|---|"
    for name, one in parts.items():
        base = next(flow for flow in ("none", "several") if flow in one["flow"])
        for size, told in one["sizes"].items():
            mean, low, high = told["accuracy"]
            ems = f"{one['flow'][f'trained, {size}']['EM']} | {one['flow'][base]['EM']} ({base})"
            yield f"| {name} | {size} | {mean} [{low}, {high}] | {told['most_frequent_label']} | {ems} |"


def _by_length(found: Any) -> Iterator[str]:
    """EM and tokens of chains of at most L pairs."""
    every = [
        (f"{SETS[name]}, {size}", told["lengths"])
        for name, one in found["sets"].items()
        for size, told in one["policies"].items()
        if "lengths" in told
    ]
    if every:
        yield "\n| EM / F1 / ATC, at most L pairs | 1 | 2 | 3 | 4 | 5 | 6 |"
        yield f"|---|{'---|' * 6}"
    for name, lengths in every:
        cells = (f"{one['EM']} / {one['F1']} / {one['ATC']:,}" for one in lengths.values())
        yield f"| {name} | {' | '.join(cells)} |"
    if every:
        yield "\nThe cap C of the published classifier counts the same pairs: its column is min(L, C)."


def span_reader() -> Iterator[str]:
    """What `SpanReader` answers of xquad_en."""
    if (found := read("training/reader")) is None:
        return
    data, scores = found["data"], found["scores"]
    minutes = found["training"]["cost"]["steps_cpu_s"] / 60
    yield "\n## Span reader\n"
    yield (
        f"{data['questions']} questions of xquad_en over all of its {data['paragraphs']} paragraphs; trained on other "
        f"articles, {found['training']['steps']['made']:,} steps in {minutes:.1f} CPU-minutes. A question takes "
        f"{found['cpu_ms_a_question']:.0f} CPU-ms.\n"
    )
    yield "| | EM | F1 |"
    yield "|---|---|---|"
    for name, one in scores.items():
        cells = (interval({part: 100 * value for part, value in one[of].items() if part != "n"}) for of in ("EM", "F1"))
        yield f"| {name} | {' | '.join(cells)} |"


def encoders() -> Iterator[str]:
    """What parts made of MiniLM add on questions that were kept apart, and what language models learn of rows."""
    if (found := read("training/encoders")) is not None:
        yield "\n## Encoders\n"
        yield "| part | trained and scored on | measure | untrained | trained | difference | steps | CPU-s |"
        yield f"|---|{'---|' * 7}"
        cut = list[str]()
        for name, one in found["parts"].items():
            score, count = one["score"], one["questions"]
            cells = (interval({key: 100 * score[of][key] for key in BOUNDS}) for of in OF)
            cut += [f"`{name}`: {note}" for note in one["notes"] if "had not converged" in note]
            yield (
                f"| `{name}` | {one['data']}, {count['train']} and {count['kept_apart']} | {score['measure']} | "
                f"{' | '.join(cells)} | {one['steps']['made']} | {sum(one['cost'].values()):.0f} |"
            )
        yield "\n" + " ".join(cut)
    if (found := read("training/language_model")) is not None:
        yield "\n## Language models\n"
        yield (
            f"A model with random weights and 16 numbers a token, {found['steps']} steps on rows with the words of the "
            "simulated reader: ln P of a token of the replies to other questions.\n"
        )
        yield "| rows | method | before | after | difference | questions |"
        yield "|---|---|---|---|---|---|"
        for name, one in found["kinds"].items():
            gain = one["gain"]
            said = f"{gain['mean']:+.2f} [{gain['low']:+.2f}, {gain['high']:+.2f}]"
            ends = f"{one['before']:.2f} | {one['after']:.2f}"
            yield f"| {name} | {one['method']} | {ends} | {said} | {one['questions_kept_apart']} |"


BOUNDS, OF = ("mean", "low", "high"), ("untrained", "trained", "difference")
