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
from spolia.evaluation.data.json_lines import replace_files
from spolia.types import Value, lazy_property

Kind: TypeAlias = Literal["person", "town", "country", "company", "work"]
Variant: TypeAlias = Literal["", "split", "contradicting"]


@dataclass(frozen=True)
class FactKind:
    """Relation of an entity.

    Args:
        name: of the fact.
        subject, target: the kinds that it joins.
        sentences: in several styles, with `{a}` and `{b}`.
        question: for `{b}`, as a sub-question about `{a}`.
        phrase: `{b}` as a part of a longer question.
    """

    name: str
    subject: Kind
    target: Kind
    sentences: tuple[str, ...]
    question: str
    phrase: str


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
        """Yield the passages, as `corpus.jsonl` has them."""
        for number, thing in enumerate(self._things):
            sources = ("local", "web") if self.variant == "contradicting" else (self._source(number),)
            for source in sources:
                yield self._document(number, thing, source, self._facts_of(source))

    def items(self) -> Iterator[dict[str, Any]]:
        """Yield the questions, as `questions.jsonl` has them."""
        random = Random(f"questions {self.seed}")
        makers: list[Callable[[Random], dict[str, Any] | None]] = [
            *(lambda random, hops=hops: self._multi_hop_item(random, hops) for hops in (1, 2, 2, 3, 3, 4, 5, 6)),
            self._comparison_item, self._intersection_item, self._aggregation_item,
            self._yes_no_item, self._unanswerable_item, self._paraphrase_item,
        ]  # fmt: skip
        questions, count, tries, turn = set[str](), 0, 0, 0
        # A small world may not allow as many questions: the search for them ends.
        while count < self.questions and tries < 50 * self.questions + 100:
            tries += 1
            # Each kind has TRIES attempts at its turn, so that a rare kind is not crowded out.
            item = makers[turn // TRIES % len(makers)](random)
            if item is None or item["question"] in questions:
                turn += 1
                continue
            turn += TRIES - turn % TRIES
            questions.add(item["question"])
            yield {"id": f"w{self.seed}-{count:06}", **item}
            count += 1
        if count < self.questions:
            raise WiringError(f"{self!r} allows {count} different questions. Write fewer questions, or more people.")

    def write(self, folder: Path, *, replace: bool = True) -> str:
        """Write the world as a data set; return the hash of its files.

        Args:
            replace: whether another data set that is there is replaced; else it is a `DataError`.
        """
        files = {
            folder / name: b"".join((json.dumps(row, ensure_ascii=False) + "\n").encode() for row in rows)
            for name, rows in (("corpus.jsonl", self.documents()), ("questions.jsonl", self.items()))
        }
        changed = [path.name for path, content in files.items() if path.exists() and path.read_bytes() != content]
        if changed and not replace:
            raise DataError(
                f"{folder} holds another data set: {' and '.join(changed)} there would be lost. Name another folder, "
                "or remove them."
            )
        with replace_files(*files) as parts:
            for part, content in zip(parts, files.values(), strict=True):
                part.write_bytes(content)
        return sha256(b"".join(files.values())).hexdigest()

    # What there is.

    @lazy_property
    def _things(self) -> tuple[FictionalEntity, ...]:
        random, used_names = Random(f"things {self.seed}"), set[str]()
        sizes: dict[Kind, int] = {
            "person": self.people, "work": self.people, "company": max(4, self.people // 2),
            "town": max(4, self.people // 5), "country": max(2, self.people // 50),
        }  # fmt: skip
        surnames = [
            _make_word(random, 2) + random.choice(("son", "ez", "ov", "ell", "")) for _ in range(self.people // 4)
        ]
        things = []
        for kind, size in sizes.items():
            for _ in range(size):
                longer = 0
                while (name := _make_name(random, kind, surnames, longer)) in used_names:
                    # The short names of a kind run out in a large world.
                    longer += 1
                used_names.add(name)
                things.append(FictionalEntity(kind, name, random.randint(1820, 1999)))
        return tuple(things)

    @lazy_property
    def _numbers_by_kind(self) -> dict[Kind, list[int]]:
        numbers: dict[Kind, list[int]] = {}
        for number, thing in enumerate(self._things):
            numbers.setdefault(thing.kind, []).append(number)
        return numbers

    @lazy_property
    def _facts(self) -> dict[tuple[int, str], int]:
        """Return the thing that each thing is joined to, by relation."""
        return self._draw_facts(Random(f"facts {self.seed}"))

    @lazy_property
    def _other_facts(self) -> dict[tuple[int, str], int]:
        """Return the facts that the web states in the contradicting world."""
        return self._draw_facts(Random(f"other facts {self.seed}"))

    def _draw_facts(self, random: Random) -> dict[tuple[int, str], int]:
        facts: dict[tuple[int, str], int] = {}
        for relation in RELATIONS:
            sources, targets = self._numbers_by_kind[relation.subject], self._numbers_by_kind[relation.target]
            if relation.name == "spouse":  # both ways; of an odd number one is married to somebody's spouse
                mixed = random.sample(sources, len(sources))
                couples = list(zip(mixed[::2], mixed[1::2], strict=False))
                facts |= {(a, relation.name): b for a, b in couples} | {(b, relation.name): a for a, b in couples}
                sources = mixed[len(couples) * 2 :]
            for source in sources:
                target = random.choice(targets)
                while target == source:
                    target = random.choice(targets)
                facts[source, relation.name] = target
        return facts

    @lazy_property
    def _names(self) -> frozenset[str]:
        return frozenset(thing.name for thing in self._things)

    @lazy_property
    def _aliases(self) -> dict[str, tuple[str, ...]]:
        """Return shorter names of people, companies and works, if no other thing may be meant."""
        shorter = {thing.name: _short_name(thing) for thing in self._things}
        count = Counter([*shorter.values(), *shorter])
        return {name: (short,) for name, short in shorter.items() if short != name and count[short] == 1}

    @lazy_property
    def _people_counts(self) -> Counter[tuple[int, int]]:
        """Count the people who were born in a town and work for a company."""
        people = self._numbers_by_kind["person"]
        return Counter((self._facts[person, "birthplace"], self._facts[person, "employer"]) for person in people)

    @lazy_property
    def _works(self) -> dict[int, list[int]]:
        """Return the works of each person."""
        works: dict[int, list[int]] = {}
        for work in self._numbers_by_kind["work"]:
            works.setdefault(self._facts[work, "author"], []).append(work)
        return works

    @lazy_property
    def _plots(self) -> dict[int, tuple[int, int]]:
        """Return the hero and plot of each work, by number; each pair occurs once, other works have none."""
        pairs = list(product(range(len(HEROES)), range(len(PLOTS))))
        return dict(
            zip(self._numbers_by_kind["work"], Random(f"plots {self.seed}").sample(pairs, len(pairs)), strict=False)
        )

    def _source(self, number: int) -> str:
        return "web" if self.variant == "split" and Random(f"source {self.seed} {number}").random() < 0.5 else "local"

    # The documents, in words.

    def _document(
        self, number: int, thing: FictionalEntity, source: str, facts: dict[tuple[int, str], int]
    ) -> dict[str, Any]:
        random = Random(f"text {self.seed} {number} {source}")
        statements = [
            random.choice(relation.sentences).format(a=thing.name, b=self._things[facts[number, relation.name]].name)
            for relation in RELATIONS
            if relation.subject == thing.kind
        ]
        event = {"person": "was born", "company": "was founded", "work": "was published"}.get(
            thing.kind, "was chartered"
        )
        if number in self._plots:
            hero, plot = self._plots[number]
            statements.append(f"{thing.name} tells of {HEROES[hero][0]} who {PLOTS[plot][0]}.")
        sentences = [*statements, f"{thing.name} {event} in {thing.year}.", *random.sample(FILLER, 2)]
        random.shuffle(sentences)
        meta = {"kind": thing.kind, "source": source}
        return {"id": self._id(number, source), "title": thing.name, "text": " ".join(sentences), "meta": meta}

    def _id(self, number: int, source: str = "local") -> str:
        return f"{source[0]}{number:06}" if self.variant == "contradicting" else f"d{number:06}"

    # What is asked.

    def _path(self, random: Random, hops: int) -> tuple[int, list[FactKind], list[int]] | None:
        """Draw a thing, relations that follow from it, and what they lead to, each once; None if that leads nowhere."""
        position = start = random.randrange(len(self._things))
        relations: list[FactKind] = []
        targets: list[int] = []
        for _ in range(hops):
            possible = [relation for relation in RELATIONS if relation.subject == self._things[position].kind]
            if not possible:
                return None
            relation = random.choice(possible)
            position = self._facts[position, relation.name]
            if position == start or position in targets:
                return None
            relations.append(relation)
            targets.append(position)
        return start, relations, targets

    def _multi_hop_item(self, random: Random, hops: int) -> dict[str, Any] | None:
        path = self._path(random, hops)
        if path is None:
            return None
        start, relations, targets = path
        question = _nested_question(relations, self._things[start].name)
        return self._item(f"{hops}-hop", question, self._things[targets[-1]].name,
                          self._steps(start, relations, targets), web=self._web_steps(start, relations))  # fmt: skip

    def _web_steps(self, start: int, relations: Sequence[FactKind]) -> Sequence[dict[str, str]]:
        """Return the steps by the web's facts, if it has others."""
        position, targets = start, []
        for relation in relations if self.variant == "contradicting" else ():
            position = self._other_facts[position, relation.name]
            targets.append(position)
        return self._steps(start, relations, targets, "web") if targets else ()

    def _steps(
        self, start: int, relations: Sequence[FactKind], targets: Sequence[int], source: str = "local"
    ) -> list[dict[str, str]]:
        document, steps = start, []
        for number, (relation, target) in enumerate(zip(relations, targets, strict=True)):
            about = self._things[start].name if number == 0 else f"#{number}"
            steps.append(
                _step(relation.question.format(a=about), self._things[target].name, self._id(document, source))
            )
            document = target
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
        """Locate the answer of a step in its document."""
        number = int(step["gold_id"][1:])
        source = "web" if step["gold_id"].startswith("w") else self._source(number)
        text = self._document(number, self._things[number], source, self._facts_of(source))["text"]
        return {"id": step["gold_id"], "start": text.index(step["answer"]), "text": step["answer"]}

    def _facts_of(self, source: str) -> dict[tuple[int, str], int]:
        """Return the facts that a source states."""
        return self._other_facts if source == "web" and self.variant == "contradicting" else self._facts

    def _comparison_item(self, random: Random) -> dict[str, Any] | None:
        kind: Kind = random.choice(("person", "company", "work"))
        first_number, second_number = random.sample(self._numbers_by_kind[kind], 2)
        first, second = self._things[first_number], self._things[second_number]
        if first.year == second.year:
            return None
        verb = {"person": "born", "company": "founded"}.get(kind, "published")
        earlier = first if first.year < second.year else second
        steps = [_step(f"In which year was {thing.name} {verb}?", str(thing.year), self._id(number))
                 for thing, number in ((first, first_number), (second, second_number))]  # fmt: skip
        return self._item("comparison", f"Which was {verb} first, {first.name} or {second.name}?", earlier.name, steps)

    def _intersection_item(self, random: Random) -> dict[str, Any] | None:
        person = random.choice(self._numbers_by_kind["person"])
        town, company = self._facts[person, "birthplace"], self._facts[person, "employer"]
        # A second such person would be another right answer.
        if self._people_counts[town, company] > 1:
            return None
        name, place, firm = (self._things[number].name for number in (person, town, company))
        steps = [_step(f"Who was born in {place} and works for {firm}?", name, self._id(person))]
        return self._item("intersection", f"Which person who works for {firm} was born in {place}?", name, steps)

    def _aggregation_item(self, random: Random) -> dict[str, Any] | None:
        person = random.choice(self._numbers_by_kind["person"])
        works = self._works.get(person, [])
        if not 1 < len(works) < 6:
            return None
        name = self._things[person].name
        steps = [_step(f"Which work did {name} write? ({number})", self._things[work].name, self._id(work))
                 for number, work in enumerate(works, 1)]  # fmt: skip
        return self._item("aggregation", f"How many works did {name} write?", str(len(works)), steps)

    def _yes_no_item(self, random: Random) -> dict[str, Any] | None:
        first, second = random.sample(self._numbers_by_kind["person"], 2)
        towns = [self._facts[person, "birthplace"] for person in (first, second)]
        names = [self._things[person].name for person in (first, second)]
        steps = [_step(f"In which town was {name} born?", self._things[town].name, self._id(person))
                 for name, town, person in zip(names, towns, (first, second), strict=True)]  # fmt: skip
        answer = "yes" if towns[0] == towns[1] else "no"
        return self._item("yes-no", f"Were {names[0]} and {names[1]} born in the same town?", answer, steps)

    def _paraphrase_item(self, random: Random) -> dict[str, Any]:
        """Make a question in other words than the document's, which names nothing."""
        work = random.choice(list(self._plots))
        hero, plot = self._plots[work]
        name, question = self._things[work].name, f"Which story is about {HEROES[hero][1]} who {PLOTS[plot][1]}?"
        return self._item("paraphrase", question, name, [_step(question, name, self._id(work))])

    def _unanswerable_item(self, random: Random) -> dict[str, Any] | None:
        relation = random.choice(RELATIONS)
        name = _make_name(random, relation.subject, [_make_word(random, 3)])
        # An invented name may be that of a thing in the world, which has an answer.
        if name in self._names:
            return None
        return self._item("unanswerable", relation.question.format(a=name), "", [])


def _nested_question(relations: Sequence[FactKind], name: str) -> str:
    """Write a question that names no step between: "Who is the mayor of the town where X was born?"."""
    about = name
    for relation in relations[:-1]:
        about = relation.phrase.format(a=about)
    return relations[-1].question.format(a=about)


def _step(question: str, answer: str, gold: str) -> dict[str, str]:
    return {"question": question, "answer": answer, "gold_id": gold}


def _short_name(thing: FictionalEntity) -> str:
    """Return `B. Hallson` for `Belda Hallson`, `Fenmar` for `Fenmar Works`, `Quinor Song` for `The Quinor Song`."""
    first, _, rest = thing.name.partition(" ")
    return {"person": f"{first[0]}. {rest}", "company": first, "work": rest}.get(thing.kind, thing.name)


def _make_word(random: Random, syllables: int) -> str:
    return "".join(random.choice(_SYLLABLES) for _ in range(syllables)).capitalize()


def _make_name(random: Random, kind: Kind, surnames: Sequence[str], longer: int = 0) -> str:
    """Make a name of a kind, `longer` syllables longer than usual."""
    if kind == "person":
        return (
            f"{_make_word(random, random.randint(1, 2) + longer)}{random.choice(_ENDS[kind])} {random.choice(surnames)}"
        )
    if kind == "work":
        return f"The {_make_word(random, 2 + longer)} {random.choice(_ENDS[kind])}"
    separator = " " if kind == "company" else ""
    return f"{_make_word(random, 2 + longer)}{separator}{random.choice(_ENDS[kind])}"


__all__ = ["FictionalWorld"]
