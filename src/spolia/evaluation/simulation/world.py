"""Invented people, places, works and companies, in documents and in questions of known depth."""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import product
from pathlib import Path
from random import Random
from typing import Any, Literal, TypeAlias

from spolia.errors import DataError, WiringError
from spolia.evaluation.data.json_lines import whole_files
from spolia.types import Value, kept

Kind: TypeAlias = Literal["person", "town", "country", "company", "work"]
Variant: TypeAlias = Literal["", "split", "contradicting"]


@dataclass(frozen=True)
class FactKind:
    """A relation of an entity.

    Args:
        name: of the fact.
        of, to: the kinds that it joins.
        said: sentences in several styles, with `{a}` and `{b}`.
        asked: the question for `{b}`, as a sub-question about `{a}`.
        described: `{b}` as a part of a longer question.
    """

    name: str
    of: Kind
    to: Kind
    said: tuple[str, ...]
    asked: str
    described: str


RELATIONS = (
    FactKind("birthplace", "person", "town",
             ("{a} was born in {b}.", "{a} first saw the light of day in {b}.", "The cradle of {a} stood in {b}.",
              "It was in {b} that {a} came into the world."),
             "In which town was {a} born?", "the town where {a} was born"),
    FactKind("employer", "person", "company",
             ("{a} works for {b}.", "{a} has been on the payroll of {b} for years.", "{a} earns a living at {b}.",
              "The career of {a} led to {b}."),
             "Which company employs {a}?", "the company that employs {a}"),
    FactKind("spouse", "person", "person",
             ("{a} is married to {b}.", "{a} shares a home with {b}, who became the other half of a happy couple.",
              "The wedding of {a} and {b} was a quiet one.", "{a} tied the knot with {b}."),
             "Who is {a} married to?", "the spouse of {a}"),
    FactKind("country", "town", "country",
             ("{a} lies in {b}.", "{a} is one of the towns of {b}.", "Travellers to {b} seldom leave out {a}.",
              "{a} belongs to {b}."),
             "In which country is {a}?", "the country of {a}"),
    FactKind("mayor", "town", "person",
             ("The mayor of {a} is {b}.", "{b} runs the town hall of {a}.", "The affairs of {a} are led by {b}.",
              "The citizens of {a} elected {b}."),
             "Who is the mayor of {a}?", "the mayor of {a}"),
    FactKind("seat", "company", "town",
             ("{a} has its headquarters in {b}.", "The head office of {a} stands in {b}.", "{a} is run from {b}.",
              "The directors of {a} meet in {b}."),
             "In which town does {a} have its headquarters?", "the town where {a} has its headquarters"),
    FactKind("founder", "company", "person",
             ("{a} was founded by {b}.", "{b} set up {a} with borrowed money.", "It was {b} who began {a}.",
              "{a} began in the kitchen of {b}."),
             "Who founded {a}?", "the founder of {a}"),
    FactKind("author", "work", "person",
             ("{a} was written by {b}.", "{a} is from the pen of {b}.", "{b} spent two years on {a}.",
              "Critics praised {b} for {a}."),
             "Who wrote {a}?", "the author of {a}"),
    FactKind("publisher", "work", "company",
             ("{a} was published by {b}.", "{b} brought out {a}.", "The rights to {a} are held by {b}.",
              "{a} came off the presses of {b}."),
             "Which company published {a}?", "the publisher of {a}"),
)  # fmt: skip
FILLER = (
    "The archives say little else of it.", "Local papers mention it now and then.", "Few visitors know the story.",
    "A short note in the register repeats this.", "Nobody has written a longer account.", "The winters there are mild.",
)  # fmt: skip
HEROES = (
    ("a lighthouse keeper", "the guardian of a beacon"), ("a doctor", "a physician"), ("a thief", "a burglar"),
    ("a sailor", "a mariner"), ("a teacher", "a school instructor"), ("a soldier", "an infantryman"),
    ("a farmer", "somebody who tills the soil"), ("a judge", "a magistrate"), ("a cook", "a chef"),
    ("a priest", "a clergyman"), ("a painter", "an artist with brush and canvas"), ("a lawyer", "an attorney"),
    ("a beggar", "somebody who asks for alms"), ("a king", "a monarch"), ("a policeman", "a constable"),
    ("a blacksmith", "somebody who forges iron"), ("a pilot", "an aviator"), ("a singer", "a vocalist"),
    ("a carpenter", "a woodworker"), ("an actress", "a stage performer"), ("a baker", "somebody who makes bread"),
    ("a widow", "somebody whose husband has died"), ("an orphan", "a child without parents"),
    ("a spy", "a secret agent"), ("a gardener", "somebody who tends flower beds"),
)  # fmt: skip
PLOTS = (
    ("goes blind", "loses the sense of sight"), ("finds buried treasure", "digs up hidden gold"),
    ("falls in love", "becomes enamoured"), ("escapes from jail", "breaks out of prison"),
    ("inherits a castle", "is left a fortress by a relative"), ("adopts a stray dog", "takes in a homeless puppy"),
    ("survives a shipwreck", "lives through the sinking of a boat"), ("learns to fly", "takes lessons in aviation"),
    ("is falsely accused of murder", "gets blamed for a killing by mistake"),
    ("wins the lottery", "hits the jackpot in a draw"), ("climbs a mountain", "scales a high peak"),
    ("loses all memory", "suffers from amnesia"), ("builds a bridge", "constructs a river crossing"),
    ("opens a restaurant", "starts an eatery"), ("hears the voices of ghosts", "is spoken to by spirits of the dead"),
    ("crosses the desert on foot", "walks through endless sands"), ("forges banknotes", "counterfeits money"),
    ("is struck by lightning", "gets hit by a thunderbolt"), ("raises twins", "brings up two siblings of one birth"),
    ("returns from war", "comes home after a military campaign"),
)  # fmt: skip
"""Plots of works, in the words of documents and of questions, without a content word in common."""
TRIES = 30
"""To make a question of a kind, before one of the next kind is made."""
_SYLLABLES = [
    "ba",
    "bel",
    "bri",
    "cal",
    "dor",
    "dra",
    "el",
    "fen",
    "gar",
    "hal",
    "in",
    "jor",
    "kel",
    "lan",
    "mar",
    "mor",
    "nel",
    "or",
    "pel",
    "quin",
    "ras",
    "sal",
    "tor",
    "ul",
    "ven",
    "wil",
    "yar",
    "zel",
]
_ENDS: dict[Kind, Sequence[str]] = {
    "person": ("", "n", "s", "ric", "da", "li"), "town": ("burg", "ford", "holm", "stad", "wick", "mouth"),
    "country": ("ia", "land", "ovia", "mark"), "company": ("Works", "Lines", "Press", "Mills", "Trust", "Optics"),
    "work": ("Song", "Letters", "Harbour", "Winter", "Garden", "Mirror"),
}  # fmt: skip


@dataclass(frozen=True)
class FictionalEntity(Value):
    """A thing of the world; `year` is when it was born, founded or published."""

    kind: Kind
    name: str
    year: int


@dataclass(frozen=True)
class FictionalWorld(Value):
    """Documents and questions of an invented world, unknown to any model, the same for the same seed.

    Args:
        seed: of everything.
        people: how many; there are as many works, half as many companies, a fifth as many towns, a fiftieth as many
            countries.
        questions: how many are drawn.
        variant: `split` puts each document into one of two sources, `local` and `web`, as its metadata say;
            `contradicting` has every document in both, with other facts in `web`: the answers are those of `local`, and
            the metadata of a question hold answer and steps of `web`.

    Raises:
        WiringError: too few people for the questions of several hops.

    >>> world = FictionalWorld(7, people=50, questions=3)
    >>> [item["type"] for item in world.items()] == [item["type"] for item in FictionalWorld(7, 50, 3).items()]
    True
    """

    seed: int
    people: int = 500
    questions: int = 300
    variant: Variant = ""

    def __post_init__(self) -> None:
        if self.people < 20 or self.questions < 0:
            raise WiringError(f"{self!r} is too small. Write people=20 or more, questions=0 or more.")
        if self.variant not in ("", "split", "contradicting"):
            raise WiringError(f"variant is {self.variant!r}. Write 'split', 'contradicting' or nothing.")

    def documents(self) -> Iterator[dict[str, Any]]:
        """The passages, as `corpus.jsonl` has them."""
        for number, thing in enumerate(self._things):
            sources = ("local", "web") if self.variant == "contradicting" else (self._source(number),)
            for source in sources:
                yield self._document(number, thing, source, self._told(source))

    def items(self) -> Iterator[dict[str, Any]]:
        """The questions, as `questions.jsonl` has them."""
        random = Random(f"questions {self.seed}")
        makers: list[Callable[[Random], dict[str, Any] | None]] = [
            *(lambda random, hops=hops: self._chained(random, hops) for hops in (1, 2, 2, 3, 3, 4, 5, 6)),
            self._compared, self._intersected, self._counted, self._yes_or_no, self._unanswerable, self._paraphrased,
        ]  # fmt: skip
        asked, made, tries, at = set[str](), 0, 0, 0
        while made < self.questions and tries < 50 * self.questions + 100:
            tries += 1
            found = makers[at // TRIES % len(makers)](random)
            if found is None or found["question"] in asked:
                at += 1
                continue
            at += TRIES - at % TRIES
            asked.add(found["question"])
            yield {"id": f"w{self.seed}-{made:06}", **found}
            made += 1
        if made < self.questions:
            raise WiringError(f"{self!r} allows {made} different questions. Write fewer questions, or more people.")

    def write(self, folder: Path, *, replace: bool = True) -> str:
        """Write the world as a data set; the hash of its files.

        Args:
            replace: whether another data set that is there is replaced; else it is a `DataError`.
        """
        files = {
            folder / name: b"".join((json.dumps(row, ensure_ascii=False) + "\n").encode() for row in rows)
            for name, rows in (("corpus.jsonl", self.documents()), ("questions.jsonl", self.items()))
        }
        others = [path.name for path, made in files.items() if path.exists() and path.read_bytes() != made]
        if others and not replace:
            raise DataError(
                f"{folder} holds another data set: {' and '.join(others)} there would be lost. Name another folder, or "
                "remove them."
            )
        with whole_files(*files) as parts:
            for part, made in zip(parts, files.values(), strict=True):
                part.write_bytes(made)
        return sha256(b"".join(files.values())).hexdigest()

    # What there is.

    @kept
    def _things(self) -> tuple[FictionalEntity, ...]:
        random, taken = Random(f"things {self.seed}"), set[str]()
        sizes: dict[Kind, int] = {
            "person": self.people, "work": self.people, "company": max(4, self.people // 2),
            "town": max(4, self.people // 5), "country": max(2, self.people // 50),
        }  # fmt: skip
        surnames = [_word(random, 2) + random.choice(("son", "ez", "ov", "ell", "")) for _ in range(self.people // 4)]
        found = []
        for kind, size in sizes.items():
            for _ in range(size):
                longer = 0
                while (name := _name(random, kind, surnames, longer)) in taken:
                    longer += 1
                taken.add(name)
                found.append(FictionalEntity(kind, name, random.randint(1820, 1999)))
        return tuple(found)

    @kept
    def _of_kind(self) -> dict[Kind, list[int]]:
        found: dict[Kind, list[int]] = {}
        for number, thing in enumerate(self._things):
            found.setdefault(thing.kind, []).append(number)
        return found

    @kept
    def _facts(self) -> dict[tuple[int, str], int]:
        """The thing that each thing is joined to, by relation."""
        return self._drawn(Random(f"facts {self.seed}"))

    @kept
    def _other_facts(self) -> dict[tuple[int, str], int]:
        """What the web says of the contradicting world."""
        return self._drawn(Random(f"other facts {self.seed}"))

    def _drawn(self, random: Random) -> dict[tuple[int, str], int]:
        facts: dict[tuple[int, str], int] = {}
        for relation in RELATIONS:
            ones, others = self._of_kind[relation.of], self._of_kind[relation.to]
            if relation.name == "spouse":  # both ways; of an odd number one is married to somebody's spouse
                mixed = random.sample(ones, len(ones))
                couples = list(zip(mixed[::2], mixed[1::2], strict=False))
                facts |= {(a, relation.name): b for a, b in couples} | {(b, relation.name): a for a, b in couples}
                ones = mixed[len(couples) * 2 :]
            for one in ones:
                other = random.choice(others)
                while other == one:
                    other = random.choice(others)
                facts[one, relation.name] = other
        return facts

    @kept
    def _names(self) -> frozenset[str]:
        return frozenset(thing.name for thing in self._things)

    @kept
    def _aliases(self) -> dict[str, tuple[str, ...]]:
        """Shorter names of people, companies and works, where no other thing may be meant."""
        shorter = {thing.name: _shorter(thing) for thing in self._things}
        count = Counter([*shorter.values(), *shorter])
        return {name: (short,) for name, short in shorter.items() if short != name and count[short] == 1}

    @kept
    def _locals(self) -> Counter[tuple[int, int]]:
        """How many people were born in a town and work for a company."""
        people = self._of_kind["person"]
        return Counter((self._facts[one, "birthplace"], self._facts[one, "employer"]) for one in people)

    @kept
    def _works(self) -> dict[int, list[int]]:
        """The works of each person."""
        found: dict[int, list[int]] = {}
        for one in self._of_kind["work"]:
            found.setdefault(self._facts[one, "author"], []).append(one)
        return found

    @kept
    def _plots(self) -> dict[int, tuple[int, int]]:
        """The hero and plot of each work, by number; each pair occurs once, other works have none."""
        pairs = list(product(range(len(HEROES)), range(len(PLOTS))))
        return dict(zip(self._of_kind["work"], Random(f"plots {self.seed}").sample(pairs, len(pairs)), strict=False))

    def _source(self, number: int) -> str:
        return "web" if self.variant == "split" and Random(f"source {self.seed} {number}").random() < 0.5 else "local"

    # The documents, in words.

    def _document(
        self, number: int, thing: FictionalEntity, source: str, facts: dict[tuple[int, str], int]
    ) -> dict[str, Any]:
        random = Random(f"text {self.seed} {number} {source}")
        said = [
            random.choice(relation.said).format(a=thing.name, b=self._things[facts[number, relation.name]].name)
            for relation in RELATIONS
            if relation.of == thing.kind
        ]
        began = {"person": "was born", "company": "was founded", "work": "was published"}.get(
            thing.kind, "was chartered"
        )
        if number in self._plots:
            hero, plot = self._plots[number]
            said.append(f"{thing.name} tells of {HEROES[hero][0]} who {PLOTS[plot][0]}.")
        sentences = [*said, f"{thing.name} {began} in {thing.year}.", *random.sample(FILLER, 2)]
        random.shuffle(sentences)
        meta = {"kind": thing.kind, "source": source}
        return {"id": self._id(number, source), "title": thing.name, "text": " ".join(sentences), "meta": meta}

    def _id(self, number: int, source: str = "local") -> str:
        return f"{source[0]}{number:06}" if self.variant == "contradicting" else f"d{number:06}"

    # What is asked.

    def _path(self, random: Random, hops: int) -> tuple[int, list[FactKind], list[int]] | None:
        """A thing, relations that follow from it, and what they lead to, each once."""
        at = start = random.randrange(len(self._things))
        relations: list[FactKind] = []
        reached: list[int] = []
        for _ in range(hops):
            ways = [one for one in RELATIONS if one.of == self._things[at].kind]
            if not ways:
                return None
            relation = random.choice(ways)
            at = self._facts[at, relation.name]
            if at == start or at in reached:
                return None
            relations.append(relation)
            reached.append(at)
        return start, relations, reached

    def _chained(self, random: Random, hops: int) -> dict[str, Any] | None:
        found = self._path(random, hops)
        if found is None:
            return None
        start, relations, reached = found
        return self._item(f"{hops}-hop", _asked(relations, self._things[start].name), self._things[reached[-1]].name,
                          self._steps(start, relations, reached), web=self._on_the_web(start, relations))  # fmt: skip

    def _on_the_web(self, start: int, relations: Sequence[FactKind]) -> Sequence[dict[str, str]]:
        """The steps by the web's facts, where it has others."""
        at, reached = start, []
        for relation in relations if self.variant == "contradicting" else ():
            at = self._other_facts[at, relation.name]
            reached.append(at)
        return self._steps(start, relations, reached, "web") if reached else ()

    def _steps(
        self, start: int, relations: Sequence[FactKind], reached: Sequence[int], source: str = "local"
    ) -> list[dict[str, str]]:
        told, steps = start, []
        for number, (relation, to) in enumerate(zip(relations, reached, strict=True)):
            about = self._things[start].name if number == 0 else f"#{number}"
            steps.append(_step(relation.asked.format(a=about), self._things[to].name, self._id(told, source)))
            told = to
        return steps

    def _item(
        self,
        type: str,
        question: str,
        answer: str,
        steps: Sequence[dict[str, str]],
        *,
        web: Sequence[dict[str, str]] = (),
    ) -> dict[str, Any]:
        gold = list(dict.fromkeys(step["gold_id"] for step in steps))
        meta: dict[str, Any] = {"hops": len(steps), "spans": [self._span(step) for step in steps]}
        meta |= {"web_answer": web[-1]["answer"], "web_decomposition": list(web)} if web else {}
        answers = [answer, *self._aliases.get(answer, ())] if answer else []
        return {"question": question, "answers": answers, "type": type, "gold_ids": gold,
                "decomposition": list(steps), "meta": meta}  # fmt: skip

    def _span(self, step: dict[str, str]) -> dict[str, Any]:
        """Where the document of a step says its answer."""
        number = int(step["gold_id"][1:])
        source = "web" if step["gold_id"].startswith("w") else self._source(number)
        text = self._document(number, self._things[number], source, self._told(source))["text"]
        return {"id": step["gold_id"], "start": text.index(step["answer"]), "text": step["answer"]}

    def _told(self, source: str) -> dict[tuple[int, str], int]:
        """The facts that a source states."""
        return self._other_facts if source == "web" and self.variant == "contradicting" else self._facts

    def _compared(self, random: Random) -> dict[str, Any] | None:
        kind: Kind = random.choice(("person", "company", "work"))
        one, other = random.sample(self._of_kind[kind], 2)
        first, second = self._things[one], self._things[other]
        if first.year == second.year:
            return None
        verb = {"person": "born", "company": "founded"}.get(kind, "published")
        earlier = first if first.year < second.year else second
        steps = [_step(f"In which year was {thing.name} {verb}?", str(thing.year), self._id(at))
                 for thing, at in ((first, one), (second, other))]  # fmt: skip
        return self._item("comparison", f"Which was {verb} first, {first.name} or {second.name}?", earlier.name, steps)

    def _intersected(self, random: Random) -> dict[str, Any] | None:
        person = random.choice(self._of_kind["person"])
        town, company = self._facts[person, "birthplace"], self._facts[person, "employer"]
        if self._locals[town, company] > 1:
            return None
        name, place, firm = (self._things[at].name for at in (person, town, company))
        steps = [_step(f"Who was born in {place} and works for {firm}?", name, self._id(person))]
        return self._item("intersection", f"Which person who works for {firm} was born in {place}?", name, steps)

    def _counted(self, random: Random) -> dict[str, Any] | None:
        person = random.choice(self._of_kind["person"])
        works = self._works.get(person, [])
        if not 1 < len(works) < 6:
            return None
        name = self._things[person].name
        steps = [_step(f"Which work did {name} write? ({number})", self._things[one].name, self._id(one))
                 for number, one in enumerate(works, 1)]  # fmt: skip
        return self._item("aggregation", f"How many works did {name} write?", str(len(works)), steps)

    def _yes_or_no(self, random: Random) -> dict[str, Any] | None:
        one, other = random.sample(self._of_kind["person"], 2)
        towns = [self._facts[at, "birthplace"] for at in (one, other)]
        names = [self._things[at].name for at in (one, other)]
        steps = [_step(f"In which town was {name} born?", self._things[town].name, self._id(at))
                 for name, town, at in zip(names, towns, (one, other), strict=True)]  # fmt: skip
        said = "yes" if towns[0] == towns[1] else "no"
        return self._item("yes-no", f"Were {names[0]} and {names[1]} born in the same town?", said, steps)

    def _paraphrased(self, random: Random) -> dict[str, Any]:
        """A question in other words than the document's, which names nothing."""
        work = random.choice(list(self._plots))
        hero, plot = self._plots[work]
        name, asked = self._things[work].name, f"Which story is about {HEROES[hero][1]} who {PLOTS[plot][1]}?"
        return self._item("paraphrase", asked, name, [_step(asked, name, self._id(work))])

    def _unanswerable(self, random: Random) -> dict[str, Any] | None:
        relation = random.choice(RELATIONS)
        name = _name(random, relation.of, [_word(random, 3)])
        if name in self._names:
            return None
        return self._item("unanswerable", relation.asked.format(a=name), "", [])


def _asked(relations: Sequence[FactKind], name: str) -> str:
    """A question that names no step between: "Who is the mayor of the town where X was born?"."""
    about = name
    for relation in relations[:-1]:
        about = relation.described.format(a=about)
    return relations[-1].asked.format(a=about)


def _step(question: str, answer: str, gold: str) -> dict[str, str]:
    return {"question": question, "answer": answer, "gold_id": gold}


def _shorter(thing: FictionalEntity) -> str:
    """`B. Hallson` of `Belda Hallson`, `Fenmar` of `Fenmar Works`, `Quinor Song` of `The Quinor Song`."""
    first, _, rest = thing.name.partition(" ")
    return {"person": f"{first[0]}. {rest}", "company": first, "work": rest}.get(thing.kind, thing.name)


def _word(random: Random, syllables: int) -> str:
    return "".join(random.choice(_SYLLABLES) for _ in range(syllables)).capitalize()


def _name(random: Random, kind: Kind, surnames: Sequence[str], longer: int = 0) -> str:
    """A name of a kind, `longer` syllables longer than usual."""
    if kind == "person":
        return f"{_word(random, random.randint(1, 2) + longer)}{random.choice(_ENDS[kind])} {random.choice(surnames)}"
    if kind == "work":
        return f"The {_word(random, 2 + longer)} {random.choice(_ENDS[kind])}"
    joined = " " if kind == "company" else ""
    return f"{_word(random, 2 + longer)}{joined}{random.choice(_ENDS[kind])}"


__all__ = ["FictionalWorld"]
