"""PlanRAG: plan the steps, gather data step by step, and plan again if the data require it.

Other than the published code: data are passages of a retriever, where the code queries SQL or Cypher; each step is a
prompt of its own with a log, where the code continues one transcript; at the end of the turns an answer is forced.
"""

from dataclasses import dataclass

from spolia.core.combinators import Loop
from spolia.core.function import step
from spolia.core.operator import Operator, Retriever
from spolia.flows.catalogue import published
from spolia.flows.evidence import Gathered, Places, empty_ranking
from spolia.models.parsers import NOTHING, THOUGHT, AnswerText, Lines, Tags, YesNo
from spolia.models.prompting.role import Ask, Role
from spolia.models.protocols import LanguageModel
from spolia.types import Answer, Query

PLAN = Role("spolia:flows/prompts/planrag_plan.txt", Lines(8), default="none")
ACT = Role("spolia:flows/prompts/planrag_act.txt", Tags((), (THOUGHT,), ("search", "answer")), default=NOTHING)
AGAIN = Role("spolia:flows/prompts/planrag_again.txt", YesNo(), default="no")
FORCED = Role("spolia:flows/prompts/planrag_forced.txt", AnswerText(), default="I do not know.")


@dataclass(frozen=True)
class Planned(Gathered):
    """The plan and the gathered data, which a new plan keeps."""

    plan: tuple[str, ...] | None = None

    def prompt_places(self) -> Places:
        plan = "\n".join(f"{number}. {plan_step}" for number, plan_step in enumerate(self.plan or (), 1))
        return super().prompt_places() | {"plan": plan}


@step(calls={"plan": 1})
def begin(query: Query, *, plan: Ask | None = None) -> Planned:
    """Start with a plan by `plan`; without it, the first turn makes the plan."""
    state = Planned(empty_ranking(query), sample=query.sample)
    return state if plan is None else state.but(plan=plan.reply(query.sample, **state.prompt_places()))


@step(calls={"ask": 1, "again": 1, "plan": 1, "search": 1})
def act(state: Planned, *, ask: Ask, again: Ask, plan: Ask, search: Retriever) -> Planned:
    """Plan if there is no plan; answer, or search for the next step and judge whether the plan still holds."""
    if state.plan is None:
        state = state.but(plan=plan.reply(state.sample, **state.prompt_places()))
    reply = state.take_turn(ask)
    thought = reply.get(THOUGHT, "")
    if answer := reply.get("answer"):
        return state.but(answer=answer, stop="answered")
    if not reply.get("search"):
        return state.add_entry(thought, "Invalid action. Write search or answer.")
    new = search(state.found.query.asking(reply["search"]))
    state = state.add_entry(thought, f"search: {reply['search']}", f"{len(new)} passages", new=new)
    # The next turn plans with all data, these included.
    return state.but(plan=None) if again.reply(state.sample, **state.prompt_places()) else state


@step(calls={"force": 1})
def finish(state: Planned, *, force: Ask) -> Answer:
    """Return the answer that the model has given, or force one."""
    return state.conclude(force)


@published(
    'Lee et al., "PlanRAG: A plan-then-retrieval augmented generation", NAACL 2024', "answered", "abstained", "cap"
)
def planrag(llm: LanguageModel, search: Retriever, turns: int = 15) -> Operator[Query, Answer]:
    plan, replan_ask = Ask(llm, PLAN, 256), Ask(llm, AGAIN, 64)
    body = act.but(ask=Ask(llm, ACT, 256), again=replan_ask, plan=plan, search=search)
    return begin >> Loop(body, max_steps=turns) >> finish.but(force=Ask(llm, FORCED, 128))
