"""A reader that answers from gold annotations, as far as the prompt that it is sent states them."""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import log
from pathlib import PurePosixPath
from typing import Any, ClassVar

from spolia.core.operator import ALIKE
from spolia.core.sentences import sentences
from spolia.evaluation.data.dataset import DataSet
from spolia.evaluation.simulation.gold_hops import GoldChain, Hop, plain
from spolia.evaluation.simulation.profile import PROFILES, Profile, draw
from spolia.models.prompting.stand_in_models import ScriptedModel
from spolia.models.protocols import CHAT, LOGPROBS, NEXT_TOKENS, SCORES, STREAM, Capabilities
from spolia.pre_retrieval.query_llm import alike
from spolia.types import Generation, Item, Prompt, Token, kept

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
_BROKEN = ("", "{", "<thought>", "I cannot help with that.", '```json\n{"answer":', "Sure! Here you go:")


@dataclass(frozen=True)
class Shown:
    """What a prompt shows, by place."""

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
    """Stands for a language model: it knows the gold, and says only what the rendered prompt states.

    It recognises its role by the prompt file and the item by the question, and looks for the
    sentences of the gold passages in the prompt. So an answer is right only if a flow has retrieved the gold passages,
    kept them through every step, and asked for them. Its scores measure retrieval and orchestration, never
    language.

    Args:
        chains: the questions with their hops; see `SimulatedReader.of`.
        profile: how often it errs.
        seed: of its mistakes.

    Source: contract, knobs and leak guards as in the project's methods catalogue; oracle readers of this kind are used
    to bound retrieval in Min et al., "Compositional questions do not necessitate multi-hop reasoning", ACL 2019.
    """

    replies: tuple[str, ...] = ()
    capabilities: frozenset[str] = Capabilities((CHAT, STREAM, LOGPROBS, NEXT_TOKENS, SCORES))
    name: str = "simulated"
    chains: tuple[GoldChain, ...] = field(default=(), repr=False, metadata=ALIKE)
    profile: Profile = PROFILES["ideal"]
    seed: int = 0

    waits: ClassVar[bool] = False

    @classmethod
    def of(
        cls, data: DataSet, items: Sequence[Item], profile: Profile = PROFILES["ideal"], seed: int = 0
    ) -> "SimulatedReader":
        """The reader of some questions of a data set, whose passages it reads once."""
        wanted = {one.gold_id for item in items for one in item.decomposition} | {
            id for item in items for id in item.documents
        }
        texts = {passage.id: (passage.title, passage.text) for passage in data.passages() if passage.id in wanted}
        return cls(chains=tuple(GoldChain.of(item, texts) for item in items), profile=profile, seed=seed)

    @kept
    def _by_question(self) -> dict[str, GoldChain]:
        return {alike(chain.item.question): chain for chain in self.chains}

    @kept
    def _hops(self) -> dict[str, list[Hop]]:
        """Hops by their question with the gold answers in its places."""
        found: dict[str, list[Hop]] = {}
        for chain in self.chains:
            gold = {number: hop.answer for number, hop in enumerate(chain.hops, 1)}
            for hop in chain.hops:
                found.setdefault(alike(hop.asked(gold)), []).append(hop)
        return found

    # What a language model does.

    def generate(self, prompt: Prompt, *, logprobs: bool = False, **settings: Any) -> Generation:
        found = super().generate(prompt, **settings)
        if not logprobs:
            return found
        unsure = 0.05 if found.text == UNKNOWN else 0.2
        start = 0 if found.text == UNKNOWN else found.text.find(GUESS) % (len(found.text) + 1)
        words = re.finditer(r"\s*\S+\s*|\s+", found.text)
        return found.but(tokens=tuple(Token(w[0], log(0.95 if w.end() <= start else unsure)) for w in words))

    def continuation(self, prompt: Prompt, text: str) -> tuple[Token, ...]:
        """How likely `text` is: that nothing was found, the less likely the more hops the prompt resolves."""
        self._charged(prompt, 1)
        asked = [_MARKUP.sub("", line) for line in prompt.text.strip().splitlines()]
        chain = next((self._by_question[alike(line)] for line in asked if alike(line) in self._by_question), None)
        if chain is None:
            return (Token(text, log(0.5)),)
        pairs = list(pairwise(asked))
        share = len(chain.answered(pairs, ())) / len(chain.hops)
        return (Token(text, log(0.9 - 0.8 * share)),)

    def next_tokens(self, prompt: Prompt, *, top: int = 5) -> tuple[Token, ...]:
        """The next word of what it would write, with 0.8, or with 0.05 where that is that it knows nothing.

        Of Self-RAG's tokens it is the one that holds: retrieve, relevant, supported, useful.
        """
        written = prompt.messages[-1].content if prompt.messages[-1].role == "assistant" else ""
        said = self._reply(prompt)
        if judged := self._critique(prompt, written, said):
            self._charged(prompt, 1)
            return (Token(judged, log(0.8)),)
        self._charged(prompt, 1)
        if not said.startswith(written):  # another prompt's answer, which this one does not go on with
            return (Token("\n", log(0.05)),)
        word = re.match(r"\s*\S+", said[len(written) :])
        sure = 0.05 if said.startswith(UNKNOWN) else 0.8
        return (Token(word[0] if word else "\n", log(sure)),)

    def _critique(self, prompt: Prompt, written: str, said: str) -> str:
        """The token of Self-RAG that comes next; empty in the prompts of others."""
        if "No Retrieval]" in prompt.text:
            return "[Retrieval]"
        if PurePosixPath(prompt.role).name.partition(".")[0] != "self_rag_read":
            return ""
        if written.endswith("[Fully supported]"):
            return "[Utility:1]" if UNKNOWN in written else "[Utility:5]"
        asked = prompt.but(messages=tuple(one for one in prompt.messages if one.role != "assistant"))
        if written:
            said = self._reply(asked).partition(" [")[0]
            holds = said != UNKNOWN and said in written
            return "[Fully supported]" if holds else "[No support / Contradictory]"
        passages = _TAG.findall(asked.text)
        chain = next((self._chain({"question": [text]}, "") for place, text in passages if place == "question"), None)
        seen = [text for place, text in passages if place == "passages"]
        return "[Relevant]" if chain and _supports(chain, seen) else "[Irrelevant]"

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
        chain = self._chain(places, body)
        if chain is None:
            return UNKNOWN
        shown = Shown(role, chain, places, key)
        return ROLES.get(role, SimulatedReader.answer)(self, shown)

    def _chain(self, places: Mapping[str, Sequence[str]], body: str) -> GoldChain | None:
        """The question that a prompt is about."""
        for text in places.get("question", ()):
            if found := self._by_question.get(alike(text)):
                return found
        for line in (*(line for text in places.get("chain", ()) for line in text.splitlines()), *body.splitlines()):
            if found := self._by_question.get(alike(line.removeprefix("Question: ").removeprefix("Query: "))):
                return found
        return None

    def _sub_answer(self, role: str, places: Mapping[str, Sequence[str]], key: str) -> str:
        """The answer of a sub-question that a passage states, if it names the right things."""
        if role == "auto_rag_imagine":
            return "Nothing is known about it."
        asked = alike(" ".join(places.get("question", ())))
        passages = places.get("passages", ())
        for hop in self._hops.get(asked, ()):
            if self._sees(hop, passages, key):
                return hop.answer
        return self._lured(passages, key) or NOTHING

    def _sees(self, hop: Hop, passages: Sequence[str], key: str) -> bool:
        if self.profile.happens("know", "know", hop.question, hop.answer, self.seed):
            return True
        return hop.is_visible(passages) and not self.profile.happens("miss", "miss", hop.question, key)

    def _lured(self, passages: Sequence[str], key: str) -> str:
        """A name from some passage, where the reader takes one."""
        if not passages or not self.profile.happens("lure", "lure", key):
            return ""
        names = re.findall(r"[A-Z][\w'-]+(?: [A-Z][\w'-]+)+", passages[int(draw("lured", key) * len(passages))])
        return names[int(draw("name", key) * len(names))] if names else ""

    def resolved(self, shown: Shown) -> dict[int, str]:
        """Answers of the hops that the prompt resolves, as the profile lets the reader see them."""
        seen = shown.passages
        if self.profile.miss:
            seen = [text for text in seen if not self.profile.happens("miss", "miss", text, shown.key)]
        known = [
            number
            for number, hop in enumerate(shown.chain.hops, 1)
            if self.profile.happens("know", "know", hop.question, hop.answer, self.seed)
        ]
        return shown.chain.answered(shown.pairs, seen, known)

    def answer(self, shown: Shown) -> str:
        """The gold answer where each hop is resolved, with a mark of the passage that states the last one."""
        found = self.resolved(shown)
        if shown.chain.is_resolved(found) and shown.chain.item.answers:
            last = shown.chain.hops[-1]
            stating = (number for number, text in _numbered(shown.passages) if last.is_supported(text))
            mark = next((f" [{number}]" for number in stating), "")
            return f"{shown.chain.item.answers[0]}{mark}"
        return self._lured(shown.passages, shown.key) or UNKNOWN

    def next_question(self, shown: Shown) -> str:
        """The first hop that is not resolved; the question itself where all are, or one before is missing."""
        return self._wanted(shown, self.resolved(shown), [asked for asked, _ in shown.pairs])

    def _wanted(self, shown: Shown, found: Mapping[int, str], before: Sequence[str], times: int = 1) -> str:
        """What to ask next.

        Args:
            times: how often a sub-question is asked before another one takes its place.
        """
        question = shown.chain.item.question
        if self.profile.happens("drift", "drift", shown.key):
            return question
        if before and self.profile.happens("dup", "dup", shown.key):
            return before[int(draw("dup of", shown.key) * len(before))]
        asked = Counter(map(alike, before))
        for number, hop in enumerate(shown.chain.hops, 1):
            if (
                number not in found
                and all(needed in found for needed in hop.needs)
                and asked[alike(hop.asked(found))] < times
            ):
                return hop.asked(found)
        words = _keywords(question)
        return next((one for one in (question, words) if alike(one) not in asked), f"{words} {len(before)}")

    def act(self, shown: Shown) -> str:
        """A thought, then the next search; the answer and its evaluation once all hops are resolved.

        What was not found is searched once more, in the second source where the flow lets the model choose.
        """
        found = self.resolved(shown)
        is_done = shown.chain.is_resolved(found)
        if is_done or self.profile.happens("over", "over", shown.key):
            is_found_correct = is_done or self.profile.happens("over", "over said", shown.key)
            evaluation = "CORRECT" if is_found_correct else "PARTIALLY CORRECT" if found else "INCORRECT"
            return (
                f"<thought>Known.</thought><answer>{self.answer(shown)}</answer><evaluation>{evaluation}</evaluation>"
            )
        before = [one for text in shown.texts("log") for one in _SEARCHED.findall(text)]
        wanted = self._wanted(shown, found, before, times=2)
        named = "<source>web</source>" if alike(wanted) in map(alike, before) else ""
        return f"<thought>Missing.</thought>{named}<search>{wanted}</search>"

    def judge(self, shown: Shown) -> str:
        """Whether all hops are resolved."""
        return self._verdict(shown.chain.is_resolved(self.resolved(shown)), shown)

    def helps(self, shown: Shown) -> str:
        """Whether new passages resolve a hop that was not."""
        every = {**shown.places, "passages": [*shown.passages, *shown.texts("new")]}
        after = self.resolved(Shown(shown.role, shown.chain, every, shown.key))
        verdict = self._verdict(len(after) > len(self.resolved(shown)), shown)
        analysis = "They say something new." if verdict == "yes" else "They say nothing new."
        return f"<analysis>{analysis}</analysis><verdict>{verdict}</verdict>"

    def relevant(self, shown: Shown) -> str:
        """Whether a passage states the answer of a hop."""
        return self._verdict(_supports(shown.chain, shown.passages), shown)

    def _verdict(self, holds: bool, shown: Shown) -> str:
        wrong = self.profile.happens("judge_fn" if holds else "judge_fp", "judge", shown.key)
        return "yes" if holds is not wrong else "no"

    def holds(self, shown: Shown) -> str:
        """Whether a passage states an answer."""
        said = plain(" ".join(shown.texts("answer")))
        return self._verdict(
            any(said in plain(text) for text in shown.passages) and self.relevant(shown) == "yes", shown
        )

    def rank(self, shown: Shown) -> str:
        """Passages that state the answer of a hop before the others."""
        numbered = _numbered(shown.passages)
        stating = [number for number, text in numbered if _supports(shown.chain, [text])]
        others = [number for number, _ in numbered if number not in stating]
        return " > ".join(f"[{number}]" for number in (*stating, *others))

    def rewrite(self, shown: Shown) -> str:
        """The words of the question that are no stop words."""
        return _keywords(shown.chain.item.question)

    def variants(self, shown: Shown) -> str:
        """The question without stop words, and with its halves changed."""
        words = _keywords(shown.chain.item.question).split()
        half = len(words) // 2
        return "\n".join((" ".join(words), " ".join(words[half:] + words[:half])))

    def plan(self, shown: Shown) -> str:
        """The sub-questions, without any answer."""
        return "\n".join(f"{number}. {hop.question}" for number, hop in enumerate(shown.chain.hops, 1))

    def imagine(self, shown: Shown) -> str:
        """A sentence of the question's words."""
        return f"This passage is about {_keywords(shown.chain.item.question)}."

    def thought(self, shown: Shown) -> str:
        """What states the first hop that the thoughts do not have yet; the answer once they have all."""
        so_far = shown.texts("thoughts", "text")
        told = shown.chain.answered((), so_far)
        found = shown.chain.answered((), [*shown.passages, *so_far])
        parts = (part for number in sorted(found.keys() - told.keys()) for part in shown.chain.hops[number - 1].parts)
        for part in parts:
            sentence = "" if part.is_stated_in(" ".join(so_far)) else _stating(part, shown.passages)
            if sentence and not self.profile.happens("miss", "miss", sentence, shown.key):
                return sentence
        if shown.chain.is_resolved(told) and shown.chain.item.answers:
            return f"So the answer is: {shown.chain.item.answers[0]}."
        return f"The question is about {_keywords(shown.chain.item.question)}."

    def go_on(self, shown: Shown) -> str:
        """As `thought`; where that says nothing, the next sub-question with a guess, which is not certain."""
        said = self.thought(shown)
        if said.startswith("So the answer is") and any("answer is" in text for text in shown.texts("text")):
            return "[END]"
        if not said.startswith("The question is about"):
            return said
        told = shown.chain.answered((), shown.texts("text"))
        open_hops = (hop for number, hop in enumerate(shown.chain.hops, 1) if number not in told)
        asked = next((hop.asked(told) for hop in open_hops if told.keys() >= set(hop.needs)), shown.chain.item.question)
        return f"{_keywords(asked)}{GUESS} something else."

    def label(self, shown: Shown) -> str:
        """How many searches a question needs."""
        return "several" if len(shown.chain.hops) > 1 else "one"

    def claims(self, shown: Shown) -> str:
        """The answer as a statement."""
        return "\n".join(shown.texts("answer"))

    def verdict(self, shown: Shown) -> str:
        """Whether a passage states it."""
        stated = plain(" ".join(shown.texts("statement")))
        return "supported" if any(stated in plain(text) for text in shown.passages) else "not enough information"

    def meanings(self, shown: Shown) -> str:
        """The question with its answer where it is resolved."""
        found = self.resolved(shown)
        hops = [(hop.asked(found), found[number]) for number, hop in enumerate(shown.chain.hops, 1) if number in found]
        return "\n".join(f"{question} | {answer}" for question, answer in hops) or "none"

    def fuse(self, shown: Shown) -> str:
        """The first answer that knows something."""
        return next((text for text in shown.texts("answers") if UNKNOWN not in text), UNKNOWN)


def _numbered(passages: Sequence[str]) -> list[tuple[int, str]]:
    """Passages with the numbers that they are shown with."""
    found = [(re.match(r"\[(\d+)\]", text), text) for text in passages]
    return [(int(mark[1]) if mark else at, text) for at, (mark, text) in enumerate(found, 1)]


def _supports(chain: GoldChain, passages: Sequence[str]) -> bool:
    """Whether a passage states something that the question needs."""
    return any(hop.is_supported(text) for hop in chain.hops for text in passages)


def _stating(hop: Hop, passages: Sequence[str]) -> str:
    """The sentence of a passage that states a hop's answer, as it is written there."""
    for passage in passages:
        text = _NUMBER.sub("", passage)  # which would be a part of the first sentence
        for start, end in sentences(text):
            if plain(text[start:end]) in hop.stated:
                return text[start:end]
    return ""


def _keywords(question: str) -> str:
    return " ".join(word for word in re.findall(r"[\w'’.-]+", question) if word.casefold() not in _STOP) or question


_NUMBER = re.compile(r"^\[\d+\] ")


Handler = Callable[[SimulatedReader, Shown], str]
ROLES: Mapping[str, Handler] = {
    "corag_next": SimulatedReader.next_question,
    "corag_enough": SimulatedReader.judge, "sufficient": SimulatedReader.judge, "planrag_again": lambda *_: "no",
    "react_turn": SimulatedReader.act, "prefrag_turn": SimulatedReader.act,
    "auto_rag_decide": SimulatedReader.act, "planrag_act": SimulatedReader.act,
    "prefrag_helps": SimulatedReader.helps,
    "rewrite": SimulatedReader.rewrite, "crag_keywords": SimulatedReader.rewrite,
    "condense": lambda _, shown: shown.chain.item.question,
    "multi_query": SimulatedReader.variants, "step_back": SimulatedReader.rewrite,
    "decompose": SimulatedReader.plan, "planrag_plan": SimulatedReader.plan,
    "hyde": SimulatedReader.imagine,
    "ircot_thought": SimulatedReader.thought, "flare_go_on": SimulatedReader.go_on,
    "useful": SimulatedReader.relevant, "relevance": SimulatedReader.relevant, "toc_holds": SimulatedReader.holds,
    "rank": SimulatedReader.rank, "label": SimulatedReader.label,
    "claims": SimulatedReader.claims, "verdict": SimulatedReader.verdict, "fuse": SimulatedReader.fuse,
    "toc_meanings": SimulatedReader.meanings,
}  # fmt: skip
"""The reply in each role, by the name of the prompt file; an answer in every other."""

__all__ = ["SimulatedReader"]
