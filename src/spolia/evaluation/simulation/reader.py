"""A reader that answers from gold annotations, as far as the prompt that it is sent states them."""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import log
from pathlib import PurePosixPath
from typing import Any, ClassVar

from spolia.core.operator import UNIFORM_ITEMS
from spolia.core.sentences import sentences
from spolia.evaluation.data.dataset import DataSet
from spolia.evaluation.simulation.gold_hops import GoldChain, Hop, plain
from spolia.evaluation.simulation.profile import PROFILES, Profile, draw
from spolia.models.prompting.stand_in_models import ScriptedModel
from spolia.models.protocols import CHAT, LOGPROBS, NEXT_TOKENS, SCORES, STREAM, Capabilities
from spolia.pre_retrieval.query_llm import normalize_text
from spolia.types import Generation, Item, Prompt, Token, lazy_property

UNKNOWN = "I do not know."
NOTHING = "No relevant information found."
GUESS = ", which is probably"
"""What follows is not certain."""
_TAG = re.compile(r"<(\w+)(?: number=\"\d+\")?>\n?(.*?)\n?</\1>", re.DOTALL)
_PAIR = re.compile(r"^Q: (.*)\nA: (.*)$", re.MULTILINE)
_MARKUP = re.compile(r"^[QA]: |</?\w[^<>]*>")
"""What stands around a question or an answer in the prompt that scores a chain."""
_SEARCHED = re.compile(r"^(?:\w+: |search: )(.*)$", re.MULTILINE)
_STOP = frozenset(
    [
        "a",
        "an",
        "and",
        "are",
        "by",
        "did",
        "do",
        "does",
        "for",
        "from",
        "had",
        "has",
        "have",
        "how",
        "in",
        "is",
        "it",
        "of",
        "on",
        "or",
        "that",
        "the",
        "to",
        "was",
        "were",
        "what",
        "when",
        "where",
        "which",
        "who",
        "whom",
        "whose",
        "why",
        "with",
    ]
)
# Replies that parsers have to refuse or repair, for the mistake `format`.
_BROKEN = ("", "{", "<thought>", "I cannot help with that.", '```json\n{"answer":', "Sure! Here you go:")


@dataclass(frozen=True)
class PromptView:
    """Content of a prompt, by place."""

    role: str
    chain: GoldChain
    places: Mapping[str, Sequence[str]]
    key: str

    def texts(self, *places: str) -> list[str]:
        return [text for place in places for text in self.places.get(place, ())]

    @property
    def passages(self) -> list[str]:
        return self.texts("passages", "passage", "facts")

    @property
    def pairs(self) -> list[tuple[str, str]]:
        return [pair for text in self.texts("chain") for pair in _PAIR.findall(text)]


@dataclass(frozen=True)
class SimulatedReader(ScriptedModel):
    """Stand-in for a language model: it knows the gold, and says only what the rendered prompt states.

    It recognises its role by the prompt file and the item by the question, and looks for the
    sentences of the gold passages in the prompt. So an answer is right only if a flow has retrieved the gold passages,
    kept them through every step, and asked for them. Its scores measure retrieval and orchestration, never
    language.

    Args:
        chains: the questions with their hops; see `SimulatedReader.from_data`.
        profile: how often it errs.
        seed: of its mistakes.

    Source: contract, knobs and leak guards as in the project's methods catalogue; oracle readers of this kind are used
    to bound retrieval in Min et al., "Compositional questions do not necessitate multi-hop reasoning", ACL 2019.
    """

    replies: tuple[str, ...] = ()
    capabilities: frozenset[str] = Capabilities((CHAT, STREAM, LOGPROBS, NEXT_TOKENS, SCORES))
    name: str = "simulated"
    chains: tuple[GoldChain, ...] = field(default=(), repr=False, metadata=UNIFORM_ITEMS)
    profile: Profile = PROFILES["ideal"]
    seed: int = 0

    waits: ClassVar[bool] = False

    @classmethod
    def from_data(
        cls, data: DataSet, items: Sequence[Item], profile: Profile = PROFILES["ideal"], seed: int = 0
    ) -> "SimulatedReader":
        """Return the reader of some questions of a data set, whose passages it reads once."""
        gold_ids = {hop.gold_id for item in items for hop in item.decomposition} | {
            id for item in items for id in item.documents
        }
        texts = {passage.id: (passage.title, passage.text) for passage in data.passages() if passage.id in gold_ids}
        return cls(chains=tuple(GoldChain.from_item(item, texts) for item in items), profile=profile, seed=seed)

    @lazy_property
    def _by_question(self) -> dict[str, GoldChain]:
        return {normalize_text(chain.item.question): chain for chain in self.chains}

    @lazy_property
    def _hops_by_question(self) -> dict[str, list[Hop]]:
        """Return the hops by their question, with the gold answers in its places."""
        hops: dict[str, list[Hop]] = {}
        for chain in self.chains:
            gold = {number: hop.answer for number, hop in enumerate(chain.hops, 1)}
            for hop in chain.hops:
                hops.setdefault(normalize_text(hop.fill_question(gold)), []).append(hop)
        return hops

    # What a language model does.

    def generate(self, prompt: Prompt, *, logprobs: bool = False, **settings: Any) -> Generation:
        generation = super().generate(prompt, **settings)
        if not logprobs:
            return generation
        unsure = 0.05 if generation.text == UNKNOWN else 0.2
        # `find` gives -1 without a guess; the remainder makes that the whole length.
        start = 0 if generation.text == UNKNOWN else generation.text.find(GUESS) % (len(generation.text) + 1)
        words = re.finditer(r"\s*\S+\s*|\s+", generation.text)
        return generation.but(tokens=tuple(Token(w[0], log(0.95 if w.end() <= start else unsure)) for w in words))

    def continuation(self, prompt: Prompt, text: str) -> tuple[Token, ...]:
        """Return how likely `text` is: that nothing was found, the less likely the more hops the prompt resolves."""
        self._charge(prompt, 1)
        lines = [_MARKUP.sub("", line) for line in prompt.text.strip().splitlines()]
        chain = next(
            (self._by_question[normalize_text(line)] for line in lines if normalize_text(line) in self._by_question),
            None,
        )
        if chain is None:
            return (Token(text, log(0.5)),)
        pairs = list(pairwise(lines))
        share = len(chain.resolve_hops(pairs, ())) / len(chain.hops)
        return (Token(text, log(0.9 - 0.8 * share)),)

    def next_tokens(self, prompt: Prompt, *, top: int = 5) -> tuple[Token, ...]:
        """Return the next word of its reply, with 0.8, or with 0.05 if the reply is that it knows nothing.

        Of Self-RAG's tokens it is the one that holds: retrieve, relevant, supported, useful.
        """
        prefix = prompt.messages[-1].content if prompt.messages[-1].role == "assistant" else ""
        reply = self._reply(prompt)
        if critique := self._critique(prompt, prefix, reply):
            self._charge(prompt, 1)
            return (Token(critique, log(0.8)),)
        self._charge(prompt, 1)
        if not reply.startswith(prefix):  # another prompt's answer, which this one does not go on with
            return (Token("\n", log(0.05)),)
        word = re.match(r"\s*\S+", reply[len(prefix) :])
        sure = 0.05 if reply.startswith(UNKNOWN) else 0.8
        return (Token(word[0] if word else "\n", log(sure)),)

    def _critique(self, prompt: Prompt, prefix: str, reply: str) -> str:
        """Return the token of Self-RAG that comes next; empty in the prompts of other methods."""
        if "No Retrieval]" in prompt.text:
            return "[Retrieval]"
        if PurePosixPath(prompt.role).name.partition(".")[0] != "self_rag_read":
            return ""
        if prefix.endswith("[Fully supported]"):
            return "[Utility:1]" if UNKNOWN in prefix else "[Utility:5]"
        bare_prompt = prompt.but(messages=tuple(message for message in prompt.messages if message.role != "assistant"))
        if prefix:
            reply = self._reply(bare_prompt).partition(" [")[0]
            holds = reply != UNKNOWN and reply in prefix
            return "[Fully supported]" if holds else "[No support / Contradictory]"
        passages = _TAG.findall(bare_prompt.text)
        chain = next(
            (self._find_chain({"question": [text]}, "") for place, text in passages if place == "question"), None
        )
        texts = [text for place, text in passages if place == "passages"]
        return "[Relevant]" if chain and _supports(chain, texts) else "[Irrelevant]"

    # What it says.

    def _reply(self, prompt: Prompt) -> str:
        role = PurePosixPath(prompt.role).name.partition(".")[0]
        body = "\n".join(message.content for message in prompt.messages if message.role != "system")
        places: dict[str, list[str]] = {}
        for place, text in _TAG.findall(body):
            places.setdefault(place, []).append(text)
        key = f"{self.seed}|{role}|{prompt.sample}|{body}"
        if self.profile.happens("format", "format", key):
            return _BROKEN[int(draw("broken", key) * len(_BROKEN))]
        if role in ("corag_reply", "auto_rag_imagine"):
            return self._sub_answer(role, places, key)
        chain = self._find_chain(places, body)
        if chain is None:
            return UNKNOWN
        view = PromptView(role, chain, places, key)
        return ROLES.get(role, SimulatedReader.answer)(self, view)

    def _find_chain(self, places: Mapping[str, Sequence[str]], body: str) -> GoldChain | None:
        """Return the chain of the question that a prompt is about."""
        for text in places.get("question", ()):
            if chain := self._by_question.get(normalize_text(text)):
                return chain
        for line in (*(line for text in places.get("chain", ()) for line in text.splitlines()), *body.splitlines()):
            if chain := self._by_question.get(normalize_text(line.removeprefix("Question: ").removeprefix("Query: "))):
                return chain
        return None

    def _sub_answer(self, role: str, places: Mapping[str, Sequence[str]], key: str) -> str:
        """Answer a sub-question that a passage states, if it names the right things."""
        if role == "auto_rag_imagine":
            return "Nothing is known about it."
        question = normalize_text(" ".join(places.get("question", ())))
        passages = places.get("passages", ())
        for hop in self._hops_by_question.get(question, ()):
            if self._sees(hop, passages, key):
                return hop.answer
        return self._false_answer(passages, key) or NOTHING

    def _sees(self, hop: Hop, passages: Sequence[str], key: str) -> bool:
        if self.profile.happens("know", "know", hop.question, hop.answer, self.seed):
            return True
        return hop.is_visible(passages) and not self.profile.happens("miss", "miss", hop.question, key)

    def _false_answer(self, passages: Sequence[str], key: str) -> str:
        """Return a name from some passage, if the profile lures the reader."""
        if not passages or not self.profile.happens("lure", "lure", key):
            return ""
        names = re.findall(r"[A-Z][\w'-]+(?: [A-Z][\w'-]+)+", passages[int(draw("lured", key) * len(passages))])
        return names[int(draw("name", key) * len(names))] if names else ""

    def resolved_hops(self, view: PromptView) -> dict[int, str]:
        """Return the answers of the hops that the prompt resolves, as the profile lets the reader see them."""
        passages = view.passages
        # An ideal reader overlooks nothing, so no passage needs a draw.
        if self.profile.miss:
            passages = [text for text in passages if not self.profile.happens("miss", "miss", text, view.key)]
        free_hops = [
            number
            for number, hop in enumerate(view.chain.hops, 1)
            if self.profile.happens("know", "know", hop.question, hop.answer, self.seed)
        ]
        return view.chain.resolve_hops(view.pairs, passages, free_hops)

    def answer(self, view: PromptView) -> str:
        """Return the gold answer if each hop is resolved, with a mark of the passage that states the last one."""
        answers = self.resolved_hops(view)
        if view.chain.is_resolved(answers) and view.chain.item.answers:
            last = view.chain.hops[-1]
            stating = (number for number, text in _number_passages(view.passages) if last.is_supported(text))
            mark = next((f" [{number}]" for number in stating), "")
            return f"{view.chain.item.answers[0]}{mark}"
        return self._false_answer(view.passages, view.key) or UNKNOWN

    def next_question(self, view: PromptView) -> str:
        """Return the first hop that is not resolved; the question itself if all are, or one before is missing."""
        return self._choose_question(view, self.resolved_hops(view), [question for question, _ in view.pairs])

    def _choose_question(
        self, view: PromptView, answers: Mapping[int, str], earlier: Sequence[str], times: int = 1
    ) -> str:
        """Choose the question to ask next.

        Args:
            times: how often a sub-question is asked before another one takes its place.
        """
        question = view.chain.item.question
        if self.profile.happens("drift", "drift", view.key):
            return question
        if earlier and self.profile.happens("dup", "dup", view.key):
            return earlier[int(draw("dup of", view.key) * len(earlier))]
        counts = Counter(map(normalize_text, earlier))
        for number, hop in enumerate(view.chain.hops, 1):
            if (
                number not in answers
                and all(needed in answers for needed in hop.needs)
                and counts[normalize_text(hop.fill_question(answers))] < times
            ):
                return hop.fill_question(answers)
        words = _keywords(question)
        return next(
            (candidate for candidate in (question, words) if normalize_text(candidate) not in counts),
            f"{words} {len(earlier)}",
        )

    def act(self, view: PromptView) -> str:
        """Write a thought, then the next search; the answer and its evaluation once all hops are resolved.

        What was not found is searched once more, in the second source where the flow lets the model choose.
        """
        answers = self.resolved_hops(view)
        is_done = view.chain.is_resolved(answers)
        if is_done or self.profile.happens("over", "over", view.key):
            is_found_correct = is_done or self.profile.happens("over", "over said", view.key)
            evaluation = "CORRECT" if is_found_correct else "PARTIALLY CORRECT" if answers else "INCORRECT"
            return f"<thought>Known.</thought><answer>{self.answer(view)}</answer><evaluation>{evaluation}</evaluation>"
        searches = [search for text in view.texts("log") for search in _SEARCHED.findall(text)]
        question = self._choose_question(view, answers, searches, times=2)
        source = "<source>web</source>" if normalize_text(question) in map(normalize_text, searches) else ""
        return f"<thought>Missing.</thought>{source}<search>{question}</search>"

    def judge(self, view: PromptView) -> str:
        """Judge whether all hops are resolved."""
        return self._verdict(view.chain.is_resolved(self.resolved_hops(view)), view)

    def helps(self, view: PromptView) -> str:
        """Judge whether new passages resolve a hop that was not resolved."""
        places = {**view.places, "passages": [*view.passages, *view.texts("new")]}
        answers = self.resolved_hops(PromptView(view.role, view.chain, places, view.key))
        verdict = self._verdict(len(answers) > len(self.resolved_hops(view)), view)
        analysis = "They say something new." if verdict == "yes" else "They say nothing new."
        return f"<analysis>{analysis}</analysis><verdict>{verdict}</verdict>"

    def relevant(self, view: PromptView) -> str:
        """Judge whether a passage states the answer of a hop."""
        return self._verdict(_supports(view.chain, view.passages), view)

    def _verdict(self, holds: bool, view: PromptView) -> str:
        is_wrong = self.profile.happens("judge_fn" if holds else "judge_fp", "judge", view.key)
        return "yes" if holds is not is_wrong else "no"

    def holds(self, view: PromptView) -> str:
        """Judge whether a passage states an answer."""
        answer = plain(" ".join(view.texts("answer")))
        return self._verdict(
            any(answer in plain(text) for text in view.passages) and self.relevant(view) == "yes", view
        )

    def rank(self, view: PromptView) -> str:
        """Rank passages that state the answer of a hop before the others."""
        numbered = _number_passages(view.passages)
        stating = [number for number, text in numbered if _supports(view.chain, [text])]
        rest = [number for number, _ in numbered if number not in stating]
        return " > ".join(f"[{number}]" for number in (*stating, *rest))

    def rewrite(self, view: PromptView) -> str:
        """Return the words of the question that are no stop words."""
        return _keywords(view.chain.item.question)

    def variants(self, view: PromptView) -> str:
        """Return the question without stop words, and with its halves exchanged."""
        words = _keywords(view.chain.item.question).split()
        half = len(words) // 2
        return "\n".join((" ".join(words), " ".join(words[half:] + words[:half])))

    def plan(self, view: PromptView) -> str:
        """List the sub-questions, without any answer."""
        return "\n".join(f"{number}. {hop.question}" for number, hop in enumerate(view.chain.hops, 1))

    def imagine(self, view: PromptView) -> str:
        """Write a sentence of the question's words."""
        return f"This passage is about {_keywords(view.chain.item.question)}."

    def thought(self, view: PromptView) -> str:
        """State the first hop that the thoughts do not have yet; the answer once they have all."""
        so_far = view.texts("thoughts", "text")
        stated = view.chain.resolve_hops((), so_far)
        answers = view.chain.resolve_hops((), [*view.passages, *so_far])
        parts = (
            part for number in sorted(answers.keys() - stated.keys()) for part in view.chain.hops[number - 1].parts
        )
        for part in parts:
            sentence = "" if part.is_stated_in(" ".join(so_far)) else _stating_sentence(part, view.passages)
            if sentence and not self.profile.happens("miss", "miss", sentence, view.key):
                return sentence
        if view.chain.is_resolved(stated) and view.chain.item.answers:
            return f"So the answer is: {view.chain.item.answers[0]}."
        return f"The question is about {_keywords(view.chain.item.question)}."

    def continue_text(self, view: PromptView) -> str:
        """Continue as `thought` does; if that says nothing, write the next sub-question with a guess, which is not
        certain."""
        thought = self.thought(view)
        if thought.startswith("So the answer is") and any("answer is" in text for text in view.texts("text")):
            return "[END]"
        if not thought.startswith("The question is about"):
            return thought
        answers = view.chain.resolve_hops((), view.texts("text"))
        open_hops = (hop for number, hop in enumerate(view.chain.hops, 1) if number not in answers)
        question = next(
            (hop.fill_question(answers) for hop in open_hops if answers.keys() >= set(hop.needs)),
            view.chain.item.question,
        )
        return f"{_keywords(question)}{GUESS} something else."

    def label(self, view: PromptView) -> str:
        """Return how many searches a question needs."""
        return "several" if len(view.chain.hops) > 1 else "one"

    def claims(self, view: PromptView) -> str:
        """Return the answer as a statement."""
        return "\n".join(view.texts("answer"))

    def verdict(self, view: PromptView) -> str:
        """Judge whether a passage makes the statement."""
        stated = plain(" ".join(view.texts("statement")))
        return "supported" if any(stated in plain(text) for text in view.passages) else "not enough information"

    def meanings(self, view: PromptView) -> str:
        """Return the questions of resolved hops with their answers."""
        answers = self.resolved_hops(view)
        hops = [
            (hop.fill_question(answers), answers[number])
            for number, hop in enumerate(view.chain.hops, 1)
            if number in answers
        ]
        return "\n".join(f"{question} | {answer}" for question, answer in hops) or "none"

    def fuse(self, view: PromptView) -> str:
        """Return the first answer that knows something."""
        return next((text for text in view.texts("answers") if UNKNOWN not in text), UNKNOWN)


def _number_passages(passages: Sequence[str]) -> list[tuple[int, str]]:
    """Return passages with the numbers that they are shown with."""
    marked = [(re.match(r"\[(\d+)\]", text), text) for text in passages]
    return [(int(mark[1]) if mark else number, text) for number, (mark, text) in enumerate(marked, 1)]


def _supports(chain: GoldChain, passages: Sequence[str]) -> bool:
    """Return whether a passage states something that the question needs."""
    return any(hop.is_supported(text) for hop in chain.hops for text in passages)


def _stating_sentence(hop: Hop, passages: Sequence[str]) -> str:
    """Return the sentence of a passage that states a hop's answer, as it is written there."""
    for passage in passages:
        text = _NUMBER.sub("", passage)  # which would be a part of the first sentence
        for start, end in sentences(text):
            if plain(text[start:end]) in hop.stated:
                return text[start:end]
    return ""


def _keywords(question: str) -> str:
    return " ".join(word for word in re.findall(r"[\w'’.-]+", question) if word.casefold() not in _STOP) or question


_NUMBER = re.compile(r"^\[\d+\] ")


Handler = Callable[[SimulatedReader, PromptView], str]
ROLES: Mapping[str, Handler] = {
    "corag_next": SimulatedReader.next_question,
    "corag_enough": SimulatedReader.judge, "sufficient": SimulatedReader.judge, "planrag_again": lambda *_: "no",
    "react_turn": SimulatedReader.act, "prefrag_turn": SimulatedReader.act,
    "auto_rag_decide": SimulatedReader.act, "planrag_act": SimulatedReader.act,
    "prefrag_helps": SimulatedReader.helps,
    "rewrite": SimulatedReader.rewrite, "crag_keywords": SimulatedReader.rewrite,
    "condense": lambda _, view: view.chain.item.question,
    "multi_query": SimulatedReader.variants, "step_back": SimulatedReader.rewrite,
    "decompose": SimulatedReader.plan, "planrag_plan": SimulatedReader.plan,
    "hyde": SimulatedReader.imagine,
    "ircot_thought": SimulatedReader.thought, "flare_go_on": SimulatedReader.continue_text,
    "useful": SimulatedReader.relevant, "relevance": SimulatedReader.relevant, "toc_holds": SimulatedReader.holds,
    "rank": SimulatedReader.rank, "label": SimulatedReader.label,
    "claims": SimulatedReader.claims, "verdict": SimulatedReader.verdict, "fuse": SimulatedReader.fuse,
    "toc_meanings": SimulatedReader.meanings,
}  # fmt: skip
"""The reply in each role, by the name of the prompt file; an answer in every other."""

__all__ = ["SimulatedReader"]
