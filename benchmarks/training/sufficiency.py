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
from spolia.pre_retrieval.query_llm import alike  # noqa: E402
from spolia.training.classifier import folds  # noqa: E402
from spolia.training.sufficiency import (  # noqa: E402  # noqa: E402
    SampledChain,
    SufficiencyTrainer,
    beginnings,
    sample_chains,
    stopped,
    stops,
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
        again = LOOKED_UP if role.startswith("corag_reply") else ()
        put = [one for one in (*PUT, *again) if one in text]
        found = prompt.messages
        for one in put:
            found = tuple(message.but(content=message.content.replace(one, "")) for message in found)
        sample = prompt.sample if role.startswith("corag_next") else sum(map((*PUT, *again).index, put)) + len(put)
        return super()._reply(prompt.but(messages=found, sample=sample))

    def _choose_question(
        self, view: PromptView, answers: Mapping[int, str], earlier: Sequence[str], times: int = 1
    ) -> str:
        asked = super()._choose_question(view, answers, earlier, times)
        is_hop = alike(asked) in {alike(hop.fill_question(answers)) for hop in view.chain.hops}
        put = ("", *PUT)[int(view.key.split("|")[2]) // DRAWS % (len(PUT) + 1)]
        if not earlier or self.profile.happens("drift", "drift", view.key):
            return put + asked
        if is_hop and draw("again", view.key) >= AGAIN:
            return put + asked
        words, which = (draw(knob, view.key) for knob in ("words", "which"))
        return put + LOOKED_UP[int(words * len(LOOKED_UP))] + _bare(earlier[int(which * len(earlier))])


class Kept(MiniLM):
    """Embeds each text once for all folds."""

    def embed(self, texts: Sequence[str], *, kind: Kind) -> Any:
        lacking = [text for text in dict.fromkeys(texts) if text not in VECTORS]
        VECTORS.update(zip(lacking, super().embed(lacking, kind=kind), strict=True))
        return np.array([VECTORS[text] for text in texts])


VECTORS: dict[str, Any] = {}


def _bare(question: str) -> str:
    return next((question.removeprefix(one) for one in LOOKED_UP if question.startswith(one)), question)


def sampled(name: str, items: Sequence[Item], n: int, folder: Path) -> list[SampledChain]:
    """The chains of a set; from the file where they are already."""
    kept = folder / f"{name}-{n}.json"
    if not kept.exists():
        data = DataSet(str(DATA / name))
        reader, search = Planner.from_data(data, items, PROFILE), BUILT_IN["bm25"](index_passages(data), None, None, 5)
        found = list(sample_chains(reader, search, items, steps=STEPS, n=n))
        rows = [(one.item, one.chain.query.question, one.chain.pairs, one.exact, one.f1, one.tokens) for one in found]
        folder.mkdir(parents=True, exist_ok=True)
        kept.write_text(json.dumps(rows))
    return [
        SampledChain(item, Chain(Query(asked), tuple(map(tuple, pairs))), tuple(exact), tuple(f1), tuple(tokens))
        for item, asked, pairs, exact, f1, tokens in json.loads(kept.read_text())
    ]


def auc(scores: Sequence[float], labels: Sequence[bool]) -> float:
    """The share of pairs of a sufficient and an insufficient row in which the sufficient one scores higher."""
    held = [score for score, label in zip(scores, labels, strict=True) if label]
    lacking = [score for score, label in zip(scores, labels, strict=True) if not label]
    won = sum((one > other) + 0.5 * (one == other) for one in held for other in lacking)
    return won / (len(held) * len(lacking))


def judged(chains: Sequence[SampledChain], ends: Sequence[int]) -> dict[str, Any]:
    """What a rule that ends chains comes to."""
    by_item: dict[str, list[float]] = {}
    for chain, end in zip(chains, ends, strict=True):
        by_item.setdefault(chain.item, []).append(chain.exact[end - 1] - chain.exact[-1])
    pairs = list(zip(chains, ends, strict=True))
    lost = interval([fmean(each) for each in by_item.values()], range=(-1, 1))
    return {
        "EM": round(100 * fmean(chain.exact[end - 1] for chain, end in pairs), 1),
        "EM_change": [round(100 * one, 2) for one in (lost.mean, lost.low, lost.high)],
        "F1": round(100 * fmean(chain.f1[end - 1] for chain, end in pairs), 1),
        "ATC": round(fmean(chain.tokens[end - 1] for chain, end in pairs)),
        "tokens_saved": round(100 * stopped(chains, ends).saved, 1),
        "chain_lengths": dict(sorted(Counter(ends).items())),
    }


def classified(items: Sequence[Item], chains: Sequence[SampledChain], hidden: int, embedder: Embedder | None) -> Any:
    """A size of the classifier, trained and asked in five folds."""
    tested, found, thresholds = list[SampledChain](), list[list[float]](), list[float]()
    began = time.process_time()
    own = folds(items, OUTER)
    for fold in range(OUTER):
        learned = [item for item in items if own[item.id] != fold]
        trainer = SufficiencyTrainer(SimulatedReader(), None, embedder, hidden=hidden, chains=chains)
        trainer.prepare(learned, (), 0)
        for step in range(trainer.steps):
            trainer.step(step / trainer.steps)
        given = trainer.weights()
        classifier = TextClassifier.from_plain("sufficiency", given)
        for chain in (one for one in chains if own[one.item] == fold):
            tested.append(chain)
            found.append(classifier.probabilities(beginnings(chain), embedder)[:, 1].tolist())
            thresholds.append(given["threshold"])
    said = asked_of(tested, found, thresholds)
    chosen = [round(one, 3) for one in dict.fromkeys(thresholds)]
    return said | {"thresholds": chosen, "training_cpu_s": round(time.process_time() - began, 1)}


def fine_tuned(items: Sequence[Item], chains: Sequence[SampledChain]) -> Any:
    """MiniLM, trained on three folds of five, with its threshold from the fourth, asked in the last."""
    from spolia.training.fine_tuning import PAPER, MiniLMSufficiency

    own = folds(items, OUTER)
    learned, chosen_on = ([item for item in items if own[item.id] in some] for some in ((2, 3, 4), (1,)))
    recipe = PAPER.but(window=256, head_rate=1e-3, low_precision=True)
    made = MiniLMSufficiency(SufficiencyTrainer(SimulatedReader(), None, chains=chains), epochs=1, recipe=recipe)
    began = time.process_time()
    made.prepare(learned, chosen_on, 0)
    for at in range(made.steps):
        made.step(at / made.steps)
    threshold = float(made.weights()["threshold"][0])
    spent = time.process_time() - began
    tested = [one for one in chains if own[one.item] == 0]
    return asked_of(tested, [made.probabilities(beginnings(one)) for one in tested], [threshold] * len(tested)) | {
        "thresholds": [round(threshold, 3)], "steps": made.steps, "questions": len({one.item for one in tested}),
        "none": judged(tested, [len(one.exact) for one in tested]), "training_cpu_s": round(spent, 1),
    }  # fmt: skip


def asked_of(
    tested: Sequence[SampledChain], found: Sequence[Sequence[float]], thresholds: Sequence[float]
) -> dict[str, Any]:
    """Where chains end by these probabilities, how well they tell, and the same for shorter chains."""
    ends = [stops(chain, one, threshold) for chain, one, threshold in zip(tested, found, thresholds, strict=True)]
    scores, labels = list[float](), list[bool]()
    for chain, one in zip(tested, found, strict=True):
        decided = chain.enough or len(one)
        scores += one[:decided]
        labels += [number == chain.enough for number in range(1, decided + 1)]
    right = [(score >= 0.5) is label for score, label in zip(scores, labels, strict=True)]
    told = {"AUC": round(auc(scores, labels), 3), "accuracy": round(100 * fmean(right), 1)}
    return judged(tested, ends) | {"lengths": by_length(tested, ends)} | told


def by_length(chains: Sequence[SampledChain], ends: Sequence[int]) -> dict[int, Any]:
    """EM, F1 and ATC where chains have at most 1, 2, … pairs."""
    found = {}
    for most in range(1, STEPS + 1):
        one = judged(chains, [min(end, most) for end in ends])
        found[most] = {name: one[name] for name in ("EM", "F1", "ATC")}
    return found


def measured(name: str, n: int, folder: Path, vectors: bool, tuned: bool) -> dict[str, Any]:
    items = [item for item in DataSet(str(DATA / name)).items() if item.decomposition]
    chains = sampled(name, items, n, folder)
    rows = sufficiency_rows(chains)
    every = [len(chain.exact) for chain in chains]
    first = [chain.enough or len(chain.exact) for chain in chains]
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
            which: judged(chains, ends) | {"lengths": by_length(chains, ends)}
            for which, ends in (("none", every), ("oracle", first))
        }
        | {size: classified(items, chains, *how) for size, how in sizes.items()}
        | ({"MiniLM, fine-tuned, one fold": fine_tuned(items, chains)} if tuned else {}),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, help="where the sampled chains are kept")
    parser.add_argument("--chains", type=int, help="of a question; by default 4 of MuSiQue, 2 of 2WikiMultihopQA")
    parser.add_argument("--vectors", action="store_true", help="also the size that reads vectors; minutes")
    parser.add_argument("--fine-tuned", action="store_true", help="also MiniLM itself; minutes")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.folder or Path(temporary)
        found = {
            name: measured(name, given.chains or n, folder, given.vectors, given.fine_tuned) for name, n in SETS.items()
        }
    note = "chains of the simulated reader; no language model was asked"
    publish("sufficiency", {"simulated": note, "profile": repr(PROFILE), "sets": found}, given.out)


if __name__ == "__main__":
    main()
