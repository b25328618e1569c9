"""Tokens that a trained sufficiency classifier saves in CoRAG, on chains of the simulated reader.

    python benchmarks/training/sufficiency.py [--folder DIR] [--chains N] [--out FILE]

Data: `SPOLIA_DATASETS`, else `../shared/datasets` beside the checkout: questions of MuSiQue and 2WikiMultihopQA with a
decomposition, over each set's whole pool, searched by BM25 (top 5). The chains are those of the flow `corag` with its
own prompts; the words of the model are simulated from the gold, so EM says whether all hops were found, and tokens are
those of the real prompts. What a language model would save is another question. Five folds of questions without a
common gold passage; the threshold is chosen inside the training folds. `oracle` stops where the answer is right for the
first time, `none` never. `lengths` has all of these for chains of at most L pairs. `--fine-tuned` trains MiniLM itself,
for one epoch and on one of the five folds, with the threshold chosen on another. Features and settings were chosen on
chains of MuSiQue, so its numbers are optimistic; nothing was chosen on 2WikiMultihopQA. `--folder` keeps the sampled
chains.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from statistics import fmean
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from results import publish  # noqa: E402
from retrieval import DATA  # noqa: E402

from spolia.evaluation.data.dataset import DataSet  # noqa: E402
from spolia.evaluation.data.passage_store import index_passages  # noqa: E402
from spolia.evaluation.simulation.profile import Profile, draw  # noqa: E402
from spolia.evaluation.simulation.reader import PromptView, SimulatedReader  # noqa: E402
from spolia.evaluation.statistics.sample import interval  # noqa: E402
from spolia.flow_files.built_in_flows import BUILT_IN  # noqa: E402
from spolia.models.onnx.minilm import MiniLM  # noqa: E402
from spolia.models.protocols import Embedder, Kind  # noqa: E402
from spolia.models.text_classifier import TextClassifier  # noqa: E402
from spolia.pre_retrieval.query_llm import normalize_text  # noqa: E402
from spolia.training.classifier import folds  # noqa: E402
from spolia.training.sufficiency import (  # noqa: E402  # noqa: E402
    SampledChain,
    SufficiencyTrainer,
    find_stop,
    measure_stopping,
    prefixes_of,
    sample_chains,
    sufficiency_rows,
)
from spolia.types import Chain, Item, Prompt, Query  # noqa: E402

SETS = {"musique": 4, "2wikimultihopqa": 2}
"""Chains of a question."""
PROFILE, AGAIN = Profile(miss=0.1, lure=0.3, drift=0.1), 0.15
LOOKED_UP = ("Once more: ", "Is it certain: ", "To be sure: ", "Again: ")
PUT, DRAWS = ("Tell me: ", "Find out: ", "We ask: "), 4
"""How the second, third and fourth chain put their sub-questions; draws of a sub-question in a chain (`hop`)."""
OUTER, STEPS = 5, 6


class Planner(SimulatedReader):
    """Does not tell by its sub-questions that it has all answers: it looks up an earlier one again, then and before.

    The chains of a question differ in how they put their sub-questions, and so in what is found and overlooked.
    """

    def _reply(self, prompt: Prompt) -> str:
        role, text = PurePosixPath(prompt.role).name, prompt.text
        repeated = LOOKED_UP if role.startswith("corag_reply") else ()
        planted = [words for words in (*PUT, *repeated) if words in text]
        messages = prompt.messages
        for words in planted:
            messages = tuple(message.but(content=message.content.replace(words, "")) for message in messages)
        sample = (
            prompt.sample
            if role.startswith("corag_next")
            else sum(map((*PUT, *repeated).index, planted)) + len(planted)
        )
        return super()._reply(prompt.but(messages=messages, sample=sample))

    def _choose_question(
        self, view: PromptView, answers: Mapping[int, str], earlier: Sequence[str], times: int = 1
    ) -> str:
        text = super()._choose_question(view, answers, earlier, times)
        is_hop = normalize_text(text) in {normalize_text(hop.fill_question(answers)) for hop in view.chain.hops}
        insertion = ("", *PUT)[int(view.key.split("|")[2]) // DRAWS % (len(PUT) + 1)]
        if not earlier or self.profile.happens("drift", "drift", view.key):
            return insertion + text
        if is_hop and draw("again", view.key) >= AGAIN:
            return insertion + text
        words, choice = (draw(knob, view.key) for knob in ("words", "which"))
        return insertion + LOOKED_UP[int(words * len(LOOKED_UP))] + _bare(earlier[int(choice * len(earlier))])


class Kept(MiniLM):
    """Embeds each text once for all folds."""

    def embed(self, texts: Sequence[str], *, kind: Kind) -> Any:
        lacking = [text for text in dict.fromkeys(texts) if text not in VECTORS]
        VECTORS.update(zip(lacking, super().embed(lacking, kind=kind), strict=True))
        return np.array([VECTORS[text] for text in texts])


VECTORS: dict[str, Any] = {}


def _bare(question: str) -> str:
    return next((question.removeprefix(phrase) for phrase in LOOKED_UP if question.startswith(phrase)), question)


def load_chains(name: str, items: Sequence[Item], n: int, folder: Path) -> list[SampledChain]:
    """The chains of a set; from the file where they are already."""
    file = folder / f"{name}-{n}.json"
    if not file.exists():
        data = DataSet(str(DATA / name))
        reader, search = Planner.from_data(data, items, PROFILE), BUILT_IN["bm25"](index_passages(data), None, None, 5)
        sampled_chains = list(sample_chains(reader, search, items, steps=STEPS, n=n))
        rows = [
            (
                sampled_chain.item,
                sampled_chain.chain.query.question,
                sampled_chain.chain.pairs,
                sampled_chain.exact,
                sampled_chain.f1,
                sampled_chain.tokens,
            )
            for sampled_chain in sampled_chains
        ]
        folder.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(rows))
    return [
        SampledChain(item, Chain(Query(question), tuple(map(tuple, pairs))), tuple(exact), tuple(f1), tuple(tokens))
        for item, question, pairs, exact, f1, tokens in json.loads(file.read_text())
    ]


def auc(scores: Sequence[float], labels: Sequence[bool]) -> float:
    """The share of pairs of a sufficient and an insufficient row in which the sufficient one scores higher."""
    positives = [score for score, label in zip(scores, labels, strict=True) if label]
    lacking = [score for score, label in zip(scores, labels, strict=True) if not label]
    won = sum((positive > other) + 0.5 * (positive == other) for positive in positives for other in lacking)
    return won / (len(positives) * len(lacking))


def judge_rule(chains: Sequence[SampledChain], ends: Sequence[int]) -> dict[str, Any]:
    """What a rule that ends chains comes to."""
    by_item: dict[str, list[float]] = {}
    for chain, end in zip(chains, ends, strict=True):
        by_item.setdefault(chain.item, []).append(chain.exact[end - 1] - chain.exact[-1])
    pairs = list(zip(chains, ends, strict=True))
    lost = interval([fmean(losses) for losses in by_item.values()], range=(-1, 1))
    return {
        "EM": round(100 * fmean(chain.exact[end - 1] for chain, end in pairs), 1),
        "EM_change": [round(100 * figure, 2) for figure in (lost.mean, lost.low, lost.high)],
        "F1": round(100 * fmean(chain.f1[end - 1] for chain, end in pairs), 1),
        "ATC": round(fmean(chain.tokens[end - 1] for chain, end in pairs)),
        "tokens_saved": round(100 * measure_stopping(chains, ends).saved, 1),
        "chain_lengths": dict(sorted(Counter(ends).items())),
    }


def judge_classifier(
    items: Sequence[Item], chains: Sequence[SampledChain], hidden: int, embedder: Embedder | None
) -> Any:
    """A size of the classifier, trained and asked in five folds."""
    tested, values, thresholds = list[SampledChain](), list[list[float]](), list[float]()
    began = time.process_time()
    own = folds(items, OUTER)
    for fold in range(OUTER):
        learned = [item for item in items if own[item.id] != fold]
        trainer = SufficiencyTrainer(SimulatedReader(), None, embedder, hidden=hidden, chains=chains)
        trainer.prepare(learned, (), 0)
        for step in range(trainer.steps):
            trainer.step(step / trainer.steps)
        weights = trainer.weights()
        classifier = TextClassifier.from_plain("sufficiency", weights)
        for chain in (threshold for threshold in chains if own[threshold.item] == fold):
            tested.append(chain)
            values.append(classifier.probabilities(prefixes_of(chain), embedder)[:, 1].tolist())
            thresholds.append(weights["threshold"])
    figures = asked_of(tested, values, thresholds)
    chosen = [round(threshold, 3) for threshold in dict.fromkeys(thresholds)]
    return figures | {"thresholds": chosen, "training_cpu_s": round(time.process_time() - began, 1)}


def fine_tuned(items: Sequence[Item], chains: Sequence[SampledChain]) -> Any:
    """MiniLM, trained on three folds of five, with its threshold from the fourth, asked in the last."""
    from spolia.training.fine_tuning import PAPER, MiniLMSufficiency

    own = folds(items, OUTER)
    learned, chosen_on = (
        [item for item in items if own[item.id] in fold_numbers] for fold_numbers in ((2, 3, 4), (1,))
    )
    recipe = PAPER.but(window=256, head_rate=1e-3, low_precision=True)
    trainer = MiniLMSufficiency(SufficiencyTrainer(SimulatedReader(), None, chains=chains), epochs=1, recipe=recipe)
    began = time.process_time()
    trainer.prepare(learned, chosen_on, 0)
    for index in range(trainer.steps):
        trainer.step(index / trainer.steps)
    threshold = float(trainer.weights()["threshold"][0])
    seconds = time.process_time() - began
    tested = [chain for chain in chains if own[chain.item] == 0]
    probabilities = [trainer.probabilities(prefixes_of(chain)) for chain in tested]
    return asked_of(tested, probabilities, [threshold] * len(tested)) | {
        "thresholds": [round(threshold, 3)], "steps": trainer.steps, "questions": len({chain.item for chain in tested}),
        "none": judge_rule(tested, [len(chain.exact) for chain in tested]), "training_cpu_s": round(seconds, 1),
    }  # fmt: skip


def asked_of(
    tested: Sequence[SampledChain], values: Sequence[Sequence[float]], thresholds: Sequence[float]
) -> dict[str, Any]:
    """Where chains end by these probabilities, how well they tell, and the same for shorter chains."""
    ends = [
        find_stop(chain, chances, threshold)
        for chain, chances, threshold in zip(tested, values, thresholds, strict=True)
    ]
    scores, labels = list[float](), list[bool]()
    for chain, chances in zip(tested, values, strict=True):
        decided = chain.pairs_needed or len(chances)
        scores += chances[:decided]
        labels += [number == chain.pairs_needed for number in range(1, decided + 1)]
    right = [(score >= 0.5) is label for score, label in zip(scores, labels, strict=True)]
    figures = {"AUC": round(auc(scores, labels), 3), "accuracy": round(100 * fmean(right), 1)}
    return judge_rule(tested, ends) | {"lengths": by_length(tested, ends)} | figures


def by_length(chains: Sequence[SampledChain], ends: Sequence[int]) -> dict[int, Any]:
    """EM, F1 and ATC where chains have at most 1, 2, … pairs."""
    rows = {}
    for step_limit in range(1, STEPS + 1):
        row = judge_rule(chains, [min(end, step_limit) for end in ends])
        rows[step_limit] = {name: row[name] for name in ("EM", "F1", "ATC")}
    return rows


def measure(name: str, n: int, folder: Path, vectors: bool, tuned: bool) -> dict[str, Any]:
    items = [item for item in DataSet(str(DATA / name)).items() if item.decomposition]
    chains = load_chains(name, items, n, folder)
    rows = sufficiency_rows(chains)
    lengths = [len(chain.exact) for chain in chains]
    first = [chain.pairs_needed or len(chain.exact) for chain in chains]
    sizes: dict[str, tuple[int, Embedder | None]] = {
        "features, logistic": (0, None),
        "features, 24 units": (24, None),
    } | ({"MiniLM and features, 24 units": (24, Kept())} if vectors else {})
    return {
        "questions": len(items),
        "chains": len(chains),
        "rows": len(rows),
        "sufficient_rows": sum(row.sufficient for row in rows),
        "policies": {
            policy: judge_rule(chains, ends) | {"lengths": by_length(chains, ends)}
            for policy, ends in (("none", lengths), ("oracle", first))
        }
        | {size: judge_classifier(items, chains, *settings) for size, settings in sizes.items()}
        | ({"MiniLM, fine-tuned, one fold": fine_tuned(items, chains)} if tuned else {}),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, help="where the sampled chains are kept")
    parser.add_argument("--chains", type=int, help="of a question; by default 4 of MuSiQue, 2 of 2WikiMultihopQA")
    parser.add_argument("--vectors", action="store_true", help="also the size that reads vectors; minutes")
    parser.add_argument("--fine-tuned", action="store_true", help="also MiniLM itself; minutes")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        reports_by_name = {
            name: measure(name, options.chains or n, folder, options.vectors, options.fine_tuned)
            for name, n in SETS.items()
        }
    note = "chains of the simulated reader; no language model was asked"
    publish("sufficiency", {"simulated": note, "profile": repr(PROFILE), "sets": reports_by_name}, options.out)


if __name__ == "__main__":
    main()
