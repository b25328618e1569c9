"""Tree of clarifications: what an ambiguous question may mean, each answered and verified, and one answer of all."""

from dataclasses import dataclass

from spolia.core.combinators import Loop
from spolia.core.function import step
from spolia.core.operator import Operator, Retriever
from spolia.flows.evidence import citing, shown
from spolia.flows.published import published
from spolia.models.parsers import Lines, Text, YesNo
from spolia.models.prompting.role import Ask, Brief, Role, replies
from spolia.models.protocols import LanguageModel
from spolia.pre_retrieval.query_llm import alike
from spolia.types import Answer, Failure, Query, Ranking, State

MEANINGS = Role("spolia:flows/prompts/toc_meanings.txt", Lines(10), default="none")
HOLDS = Role("spolia:flows/prompts/toc_holds.txt", YesNo(), default="no")
LONG = Role("spolia:flows/prompts/toc_answer.txt", Text(), default="I do not know.")
RESTARTS, NODES, EXPANSIONS, DEPTH = 3, 10, 15, 3
Pair = tuple[str, str]


@dataclass(frozen=True)
class Tree(State):
    """Meanings of a question.

    Args:
        found: passages of the question.
        leaves: what is to be expanded next, with its depth.
        pairs: the meanings that were kept, each with its answer.
        is_pruned: whether a meaning has to be verified.
    """

    found: Ranking
    leaves: tuple[tuple[str, int], ...]
    pairs: tuple[Pair, ...] = ()
    expansions: int = 0
    restarts: int = 0
    is_pruned: bool = True


@step
def root(found: Ranking) -> Tree:
    return Tree(found, ((found.query.question, 0),), sample=found.query.sample)


@step(calls={"ask": 1, "holds": 10, "search": 1})
def expand(tree: Tree, *, ask: Ask, holds: Ask, search: Retriever, show: int = 5) -> Tree:
    """Ask for the meanings of a leaf and keep the new ones that a passage confirms."""
    if not tree.leaves:  # all over again from every question that is known
        again = ((tree.found.query.question, 0), *((question, 1) for question, _ in tree.pairs))
        tree = tree.but(leaves=again, restarts=tree.restarts + 1)
    (question, depth), *rest = tree.leaves
    tree = tree.but(leaves=tuple(rest), expansions=tree.expansions + 1)
    if depth <= DEPTH:
        near = search(tree.found.query.asking(question)).cut(show)
        said = ask.reply(tree.sample * EXPANSIONS + tree.expansions, question=question, passages=shown(near))
        kept = confirmed(tree, fresh(tree, said), near, holds)
        deeper = tuple((one, depth + 1) for one, _ in kept)
        tree = tree.but(pairs=(*tree.pairs, *kept)[:NODES], leaves=(*tree.leaves, *deeper))
    if not tree.pairs and tree.is_pruned and (tree.restarts >= RESTARTS or tree.expansions >= 10):
        tree = tree.but(is_pruned=False, restarts=0)
    if len(tree.pairs) >= NODES:
        return tree.but(stop="full")
    return tree.but(stop="exhausted") if tree.restarts >= RESTARTS else tree


def fresh(tree: Tree, lines: tuple[str, ...]) -> list[Pair]:
    """The pairs `question | answer` of a reply that are new."""
    known = {alike(question) for question, _ in tree.pairs} | {alike(tree.found.query.question)}
    found: dict[str, Pair] = {}
    for line in lines:
        question, bar, answer = (part.strip() for part in line.partition("|"))
        if bar and question and answer and alike(question) not in known:
            found.setdefault(alike(question), (question, answer))
    return list(found.values())


def confirmed(tree: Tree, pairs: list[Pair], near: Ranking, holds: Ask) -> list[Pair]:
    """Those whose answer the best passage confirms."""
    if not tree.is_pruned:
        return pairs
    asked = tree.found.query.question
    briefs = [Brief.of(tree.sample, question=asked, meaning=q, answer=a, passages=shown(near.cut(1))) for q, a in pairs]
    return [
        pair
        for pair, said in zip(pairs, replies(holds, briefs), strict=True)
        if said is True and not isinstance(said, Failure)
    ]


@step(calls={"write": 1})
def conclude(tree: Tree, *, write: Ask, show: int = 5) -> Answer:
    """One long answer to all meanings."""
    found = tree.found.cut(show)
    meanings = "\n".join(f"{question} {answer}" for question, answer in tree.pairs)
    said = write.reply(tree.sample, question=found.query.question, meanings=meanings, passages=shown(found))
    return citing(said, found)


@published('Kim et al., "Tree of clarifications", EMNLP 2023', "full", "exhausted", "cap")
def tree_of_clarifications(
    llm: LanguageModel, search: Retriever, expansions: int = EXPANSIONS, temperature: float = 0.7
) -> Operator[Query, Answer]:
    grow = expand.but(ask=Ask(llm, MEANINGS, 512, temperature), holds=Ask(llm, HOLDS, 16), search=search)
    write = conclude.but(write=Ask(llm, LONG, 512))
    return search >> root >> Loop(grow, max_steps=expansions) >> write
