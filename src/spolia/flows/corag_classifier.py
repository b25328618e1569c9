"""CoRAG with a classifier outside the model, which ends a chain that suffices.

The classifier reads the chain in our form, in which `spolia train sufficiency` shows it, whatever `form` prompts have.
"""

from spolia.core.function import step
from spolia.core.operator import Operator, Retriever
from spolia.flows.catalogue import published
from spolia.flows.corag import CHARACTERS, greedy
from spolia.flows.corag_best_of_n import build_best_of_n
from spolia.flows.corag_tree import build_tree
from spolia.models.parsers import YesNo
from spolia.models.prompting.role import Ask, Role
from spolia.models.protocols import LanguageModel, Scorer, ScoresContinuations
from spolia.orchestration.judges import Classified
from spolia.types import Answer, Chain, Query, Verdict

ENOUGH = Role("spolia:flows/prompts/corag_enough.txt", YesNo(), default="no")
SOURCE = 'Yeom et al., "Chain of retrieval with an external sufficiency classifier", 2025'


@step(calls={"enough": 1})
def judged(chain: Chain, *, enough: Ask) -> Verdict:
    """Ask a model whether the chain answers the question."""
    return Verdict(enough.reply(chain=chain.format_text(CHARACTERS)), "sufficient")


@published(SOURCE, "abstained", "sufficient", "cap", "pairs", "repeated")
def corag_classifier(
    llm: LanguageModel,
    search: Retriever,
    scorer: Scorer,
    steps: int = 6,
    pairs: int | None = None,
    threshold: float = 0.5,
    form: str = "plain",
) -> Operator[Query, Answer]:
    """Stop when a trained classifier gives question and chain at least a threshold."""
    return greedy(llm, search, Classified(scorer, threshold), steps, pairs, form)


@published(SOURCE, "abstained", "sufficient", "cap", "repeated")
def corag_classifier_best_of_n(
    llm: ScoresContinuations, search: Retriever, scorer: Scorer, steps: int = 6, n: int = 4, form: str = "plain"
) -> Operator[Query, Answer]:
    return build_best_of_n(llm, search, Classified(scorer), steps, n, form)


@published(SOURCE, "abstained", "sufficient", "cap", "exhausted")
def corag_classifier_tree(
    llm: ScoresContinuations, search: Retriever, scorer: Scorer, steps: int = 6, form: str = "plain"
) -> Operator[Query, Answer]:
    return build_tree(llm, search, Classified(scorer), steps, form)


@published(SOURCE, "abstained", "sufficient", "cap", "pairs", "repeated")
def corag_oracle(
    llm: LanguageModel, search: Retriever, steps: int = 6, pairs: int | None = None, form: str = "plain"
) -> Operator[Query, Answer]:
    """Stop when the model itself finds that the chain suffices; the simulated reader knows, other models judge."""
    return greedy(llm, search, judged.but(enough=Ask(llm, ENOUGH, 16)), steps, pairs, form)
