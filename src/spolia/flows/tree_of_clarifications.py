"""Tree of clarifications: the meanings of an ambiguous question, each answered and verified, and one answer to all.

Passages are found once, for the question itself. Each clarification reads those of them that are nearest to it.

Other than the published code: the prompt has no examples; a meaning is verified by its nearest passage, used passages
are not dropped; a reply that cannot be read adds no meanings, where the code takes those of the node before.
"""

from collections import Counter
from dataclasses import dataclass
from math import log

from spolia.core.combinators import Loop
from spolia.core.function import step
from spolia.core.operator import Operator, Retriever
from spolia.flows.catalogue import published
from spolia.flows.evidence import cite_reply, show_hits
from spolia.models.parsers import AnswerText, Lines, YesNo
from spolia.models.prompting.role import Ask, Brief, Role, replies
from spolia.models.protocols import Embedder, LanguageModel
from spolia.post_retrieval.mmr import MMR
from spolia.pre_retrieval.query_llm import normalize_text
from spolia.stores.corpus import NodeGroup
from spolia.stores.lexical.analysis import Analyzer
from spolia.types import Answer, Failure, Query, Ranking, State

MEANINGS = Role("spolia:flows/prompts/toc_meanings.txt", Lines(10), default="none")
HOLDS = Role("spolia:flows/prompts/toc_holds.txt", YesNo(), default="no")
LONG = Role("spolia:flows/prompts/toc_answer.txt", AnswerText(), default="I do not know.")
RESTARTS, NODES, EXPANSIONS, DEPTH = 3, 10, 15, 3
Pair = tuple[str, str]
Nearest = Operator[Ranking, Ranking]


@dataclass(frozen=True)
class Tree(State):
    """The meanings of a question so far.

    Args:
        found: passages of the question.
        leaves: what is to be expanded next, with its depth.
        pairs: the meanings that were kept, each with its answer.
        depths: of the meanings.
        is_pruned: whether a meaning has to be verified.
    """

    found: Ranking
    leaves: tuple[tuple[str, int], ...]
    pairs: tuple[Pair, ...] = ()
    depths: tuple[int, ...] = ()
    expansions: int = 0
    restarts: int = 0
    is_pruned: bool = True

    def reopen(self) -> "Tree":
        """Start over from every known question that may have children."""
        meanings = zip((question for question, _ in self.pairs), self.depths, strict=True)
        questions = ((self.found.query.question, 0), *meanings)
        return self.but(leaves=tuple(leaf for leaf in questions if leaf[1] <= DEPTH), restarts=self.restarts + 1)

    def add_children(self, new_pairs: list[Pair], depth: int) -> "Tree":
        """Add meanings below a leaf; they are leaves themselves unless they lie too deep."""
        new_pairs = new_pairs[: NODES - len(self.pairs)]  # one reply may hold more meanings than there is room for
        leaves = tuple((question, depth + 1) for question, _ in new_pairs if depth < DEPTH)
        return self.but(
            pairs=(*self.pairs, *new_pairs),
            depths=(*self.depths, *(depth + 1 for _ in new_pairs)),
            leaves=(*self.leaves, *leaves),
        )


@step
def root(ranking: Ranking) -> Tree:
    return Tree(ranking, ((ranking.query.question, 0),), sample=ranking.query.sample)


@step
def by_words(ranking: Ranking, *, show: int = 5) -> Ranking:
    """Rank passages by the words shared with the query: Σ ln(1 + n / n_w) over these words w; ties keep their order."""
    analyzer = Analyzer()
    words = [frozenset(analyzer.words(node.indexed_text)) for node in ranking.nodes]
    holders = Counter(word for node_words in words for word in node_words)
    # sorted: sums of floats depend on the order, a set's on the process
    query_words = sorted(set(analyzer.words(ranking.query.question)))
    hits = [
        hit.but(score=sum(log(1 + len(words) / holders[word]) for word in query_words if word in node_words))
        for hit, node_words in zip(ranking.hits, words, strict=True)
    ]
    return ranking.but(hits=tuple(sorted(hits, key=lambda hit: -hit.score)[:show]))


@step(calls={"ask": 1, "holds": 10, "nearest": 1})
def expand(tree: Tree, *, ask: Ask, holds: Ask, nearest: Nearest) -> Tree:
    """Ask for the meanings of a leaf and keep the new ones that a passage confirms."""
    tree = tree if tree.leaves else tree.reopen()
    (question, depth), *rest = tree.leaves
    tree = tree.but(leaves=tuple(rest), expansions=tree.expansions + 1)
    near = nearest(tree.found.but(query=tree.found.query.asking(question)))
    # A number of its own for each draw: a leaf that is asked again must get another reply.
    lines = ask.reply(tree.sample * EXPANSIONS + tree.expansions, question=question, passages=show_hits(near))
    tree = tree.add_children(keep_confirmed(tree, parse_new_pairs(tree, lines), near, holds), depth)
    if not tree.pairs and tree.is_pruned and (tree.restarts >= RESTARTS or tree.expansions >= 10):
        # Nothing was confirmed: now all are taken.
        tree = tree.but(is_pruned=False, restarts=0)
    if len(tree.pairs) >= NODES:
        return tree.but(stop="full")
    return tree.but(stop="exhausted") if tree.restarts >= RESTARTS else tree


def parse_new_pairs(tree: Tree, lines: tuple[str, ...]) -> list[Pair]:
    """Return the new pairs `question | answer` of a reply."""
    known_questions = {normalize_text(question) for question, _ in tree.pairs} | {
        normalize_text(tree.found.query.question)
    }
    new_pairs: dict[str, Pair] = {}
    for line in lines:
        # Replies in Chinese or Japanese have the wide bar.
        question, bar, answer = (part.strip() for part in line.replace("｜", "|").partition("|"))
        if bar and question and answer and normalize_text(question) not in known_questions:
            new_pairs.setdefault(normalize_text(question), (question, answer))
    return list(new_pairs.values())


def keep_confirmed(tree: Tree, pairs: list[Pair], near: Ranking, holds: Ask) -> list[Pair]:
    """Return the pairs whose answer the best passage confirms."""
    if not tree.is_pruned:
        return pairs
    question = tree.found.query.question
    briefs = [
        Brief.from_texts(tree.sample, question=question, meaning=q, answer=a, passages=show_hits(near.cut(1)))
        for q, a in pairs
    ]
    return [
        pair
        for pair, verdict in zip(pairs, replies(holds, briefs), strict=True)
        if verdict is True and not isinstance(verdict, Failure)
    ]


@step(calls={"write": 1, "nearest": 1})
def conclude(tree: Tree, *, write: Ask, nearest: Nearest) -> Answer:
    """Write one long answer to all meanings."""
    ranking = nearest(tree.found)
    meanings = "\n".join(f"{question} {answer}" for question, answer in tree.pairs)
    reply = write.reply(tree.sample, question=ranking.query.question, meanings=meanings, passages=show_hits(ranking))
    return cite_reply(reply, ranking)


@published('Kim et al., "Tree of clarifications", EMNLP 2023', "abstained", "full", "exhausted", "cap", top_k=100)
def tree_of_clarifications(
    llm: LanguageModel,
    search: Retriever,
    embedder: Embedder | None = None,
    group: NodeGroup | None = None,
    expansions: int = EXPANSIONS,
    temperature: float = 0.7,
    show: int = 5,
) -> Operator[Query, Answer]:
    """Find the passages nearest to a clarification by the embedder; without one, by their words.

    Args:
        search: is asked once.
        group: whose stored vectors are taken, so that no passage is embedded again.
        show: passages for each clarification.
    """
    nearest: Nearest = by_words.but(show=show) if embedder is None else MMR(embedder, group, 1.0, show)
    grow = expand.but(ask=Ask(llm, MEANINGS, 512, temperature), holds=Ask(llm, HOLDS, 16), nearest=nearest)
    write = conclude.but(write=Ask(llm, LONG, 512), nearest=nearest)
    return search >> root >> Loop(grow, max_steps=expansions) >> write
