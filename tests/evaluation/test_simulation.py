"""The simulated reader says only what its prompts hold; invented worlds are the same for the same seed."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

from spolia import Answer, Hit, Node, Query, Ranking, Run, step
from spolia.core.operator import Operator
from spolia.errors import DataError
from spolia.evaluation import DataSet
from spolia.evaluation.experiment.flows import code_hashes, identity, walk_parts
from spolia.evaluation.measures.answers.answer_text import normalise
from spolia.evaluation.simulation.gold_hops import GoldChain, plain
from spolia.evaluation.simulation.profile import PROFILES, Profile
from spolia.evaluation.simulation.reader import PromptView, SimulatedReader
from spolia.evaluation.simulation.world import FictionalWorld
from spolia.flows.catalogue import find_flow
from spolia.flows.ircot import THOUGHT
from spolia.generation.prompt import number_passages
from spolia.generation.reader import Reader
from spolia.run.lane import count_reasons
from spolia.types import Item, SubQuestion
from tests.cases import check_each

CHAINED = ("1-hop", "2-hop", "3-hop", "4-hop")
READING = ("naive", "rrr", "hyde", "advanced", "iter-retgen", "ircot", "corag", "corag-oracle", "prefrag", "react",
           "auto-rag", "planrag", "crag-grader")  # fmt: skip


class World:
    """A data set of a small world, with its passages by id."""

    def __init__(self, folder: Path, **more: Any) -> None:
        FictionalWorld(7, people=60, questions=39, **more).write(folder)
        self.data = DataSet(str(folder))
        self.items = list(self.data.items())
        self.texts = {passage.id: passage.text for passage in self.data.passages()}

    def gold(self, item: Item) -> tuple[str, ...]:
        return tuple(self.texts[id] for id in sorted(item.documents))

    def others(self, item: Item, count: int = 5) -> tuple[str, ...]:
        pool = sorted(self.texts.keys() - item.documents)
        return tuple(self.texts[id] for id in Random(item.id).sample(pool, count))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp("world"))


@step
def fixed(query: Query, *, texts: tuple[str, ...], prefix: str = "n") -> Ranking:
    return Ranking(
        query, tuple(Hit(Node(f"{prefix}{number}", text), 1.0) for number, text in enumerate(texts)), "local"
    )


def flow(name: str, reader: SimulatedReader, texts: tuple[str, ...], prefix: str = "n") -> Operator[Query, Answer]:
    search = fixed.but(texts=texts, prefix=prefix)
    return find_flow(name).build_flow({"llm": reader, "search": search, "web": search})


def is_right(answer: Answer, item: Item) -> bool:
    return any(normalise(answer.text.partition(" [")[0]) == normalise(accepted) for accepted in item.answers)


@pytest.mark.parametrize("name", READING)
def test_all_that_is_needed_is_enough_for_every_flow(world: World, name: str) -> None:
    reader = SimulatedReader.from_data(world.data, world.items)
    for item in (candidate for candidate in world.items if candidate.type in CHAINED):
        assert is_right(flow(name, reader, world.gold(item))(Query(item.question)), item), (item.question, item.type)


@pytest.mark.slow
@pytest.mark.parametrize("name", READING)
def test_what_is_not_needed_is_never_enough(world: World, name: str) -> None:
    reader = SimulatedReader.from_data(world.data, world.items)
    for item in (candidate for candidate in world.items if candidate.type in CHAINED):
        assert not is_right(flow(name, reader, world.others(item))(Query(item.question)), item)
        assert not is_right(flow(name, reader, ())(Query(item.question)), item)


@pytest.mark.parametrize("name", ["self-rag", "replug", "replug-token", "ra-dit", "flare"])
def test_a_passage_that_states_the_answer_is_enough_among_others_that_do_not(world: World, name: str) -> None:
    """Whatever such a flow makes of probabilities: one that abstains is less sure than one that found something."""
    reader = SimulatedReader.from_data(world.data, world.items)
    for item in (candidate for candidate in world.items if candidate.type == "1-hop"):
        texts = (*world.gold(item), *world.others(item, 4))
        assert is_right(flow(name, reader, texts)(Query(item.question)), item), item.question


@pytest.mark.parametrize("name", ["react", "prefrag", "prefrag-prompt"])
def test_what_the_first_source_lacks_is_searched_in_the_second(world: World, name: str) -> None:
    reader = SimulatedReader.from_data(world.data, world.items)
    for item in (candidate for candidate in world.items if candidate.type in ("1-hop", "2-hop")):
        first, second = fixed.but(texts=world.others(item)), fixed.but(texts=world.gold(item), prefix="w")
        answer = find_flow(name).build_flow({"llm": reader, "search": first, "web": second})(Query(item.question))
        assert is_right(answer, item), (item.question, answer)


def test_flare_asks_for_the_next_hop_with_the_answer_that_it_wrote(world: World) -> None:
    """It searches with the words that are certain, and the guess is not."""
    reader = SimulatedReader.from_data(world.data, world.items)
    item = next(candidate for candidate in world.items if candidate.type == "2-hop")
    with Run() as run, run.lane() as lane:
        flow("flare", reader, (world.texts[item.decomposition[0].gold_id],))(Query(item.question))
    assert plain(item.decomposition[0].answer) in plain(lane.retrievals[-1].query.text)
    assert "something else" not in lane.retrievals[-1].query.text


@pytest.mark.parametrize("name", ["", "a.txt"])
def test_the_first_sentence_of_a_passage_is_stated_without_its_number(name: str) -> None:
    """A file name is another line; without one the number stands before the first sentence."""
    item = Item("q", "Where did the ship of the sailor sink?", ("Salo",), (("b",),))
    gold = "The ship of the sailor sank near Salo. It was old."
    reader = SimulatedReader(chains=(GoldChain.from_item(item, {"b": ("", gold)}),))
    hit = Hit(Node("n", gold, uri=name), 1.0)
    prompt = THOUGHT.prompt_for({
        "question": item.question, "thoughts": "", "passages": number_passages(Ranking(Query("?"), (hit,)), 9_999)
    })  # fmt: skip
    assert reader.generate(prompt).text == "The ship of the sailor sank near Salo."


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ircot", "corag", "prefrag", "react", "planrag"])
def test_no_query_holds_an_answer_that_was_not_found_before(world: World, name: str) -> None:
    reader = SimulatedReader.from_data(world.data, world.items)
    for item in (candidate for candidate in world.items if candidate.type in CHAINED):
        with Run() as run, run.lane() as lane:
            flow(name, reader, world.others(item))(Query(item.question))
        question = plain(item.question)
        for hop in item.decomposition:
            if plain(hop.answer) not in question:
                assert all(plain(hop.answer) not in plain(ranking.query.text) for ranking in lane.retrievals)


def test_the_names_of_passages_mean_nothing(world: World) -> None:
    reader = SimulatedReader.from_data(world.data, world.items)
    for item in world.items[:13]:
        replies = {flow("corag", reader, world.gold(item), prefix)(Query(item.question)).text for prefix in ("n", "zz")}
        assert len(replies) == 1


def test_more_that_is_needed_never_makes_an_answer_worse(world: World) -> None:
    reader = SimulatedReader.from_data(world.data, world.items)
    for item in (candidate for candidate in world.items if candidate.type in CHAINED):
        texts = world.others(item, 2) + world.gold(item)
        right = [is_right(flow("naive", reader, texts[:count])(Query(item.question)), item) for count in range(6)]
        assert right == sorted(right)


@pytest.mark.slow
def test_a_noisy_reader_errs_the_same_way_twice_and_differently_for_another_seed(world: World) -> None:
    def answer_questions(seed: int) -> list[str]:
        reader = SimulatedReader.from_data(world.data, world.items, PROFILES["noisy"], seed)
        return [flow("corag", reader, world.gold(item))(Query(item.question)).text for item in world.items[:13]]

    assert answer_questions(1) == answer_questions(1)
    assert answer_questions(1) != answer_questions(2)


def test_a_reader_that_knows_everything_needs_no_passage(world: World) -> None:
    reader = SimulatedReader.from_data(world.data, world.items, Profile(know=1.0))
    item = next(candidate for candidate in world.items if candidate.type == "3-hop")
    assert is_right(flow("closed-book", reader, ())(Query(item.question)), item)


def test_what_a_flow_depends_on_is_found_without_a_look_at_every_question(world: World) -> None:
    whole = SimulatedReader.from_data(world.data, world.items)
    reader, full_reader = Reader(whole.but(chains=whole.chains[:1])), Reader(whole)
    assert len(list(walk_parts(full_reader))) == len(list(walk_parts(reader)))
    assert code_hashes(full_reader) == code_hashes(reader)
    assert code_hashes(full_reader).keys() >= {"Reader", "SimulatedReader", "GoldChain", "Hop", "Item"}
    assert identity(full_reader, Run(), {})["content"] != identity(reader, Run(), {})["content"]


def test_a_step_that_names_an_earlier_answer_waits_for_it() -> None:
    """As the triples of 2WikiMultihopQA name it, some without a gold passage of their own."""
    steps = (
        SubQuestion("James Stanley >> father", "Thomas Stanley, 1st Earl of Derby", "a"),
        SubQuestion("Thomas Stanley >> place of death", "Lancashire"),
    )
    item = Item("q", "Where did James Stanley's father die?", ("Lancashire",), (("a",), ("b",)), decomposition=steps)
    texts = {
        "a": ("James Stanley", "His father was Thomas Stanley, 1st Earl of Derby."),
        "b": ("T", "He died in Lancashire."),
    }
    chain = GoldChain.from_item(item, texts)
    assert [hop.question for hop in chain.hops] == ["James Stanley >> father", "#1 >> place of death"]
    assert chain.resolve_hops((), [texts["b"][1]]) == {}
    assert chain.is_resolved(chain.resolve_hops((), [text for _, text in texts.values()]))


PAGES = {
    "a": ("Lilu (mythology)", "Lilu is a demon of old tales. It was feared by Ada Olsen."),
    "b": ("Ada Olsen", "Ada Olsen was a sailor. Her ship was the Nokia."),
    "c": ("The Old Harbour", "The Old Harbour is a port. The Nokia sank there."),
}


@pytest.mark.parametrize(
    ("question", "answer", "gold", "hops"),
    [
        ("Which is older, Lilu or Ada Olsen?", "Lilu", "ab", ["Lilu", "Ada Olsen"]),
        ("What was the ship of her who feared Lilu?", "Nokia", "ab",
         ["What was the ship of her who feared Lilu?", "What was the ship of her who feared Lilu? #1"]),
        ("Where did the ship of the sailor sink?", "The Old Harbour", "bc", ["Where did the ship of the sailor sink?"]),
    ],
)  # fmt: skip
def test_a_hop_made_of_gold_passages_names_what_the_question_or_an_earlier_answer_does(
    question: str, answer: str, gold: str, hops: list[str]
) -> None:
    item = Item("q", question, (answer,), tuple((page,) for page in gold))
    chain = GoldChain.from_item(item, PAGES)
    assert [hop.question for hop in chain.hops] == hops
    assert chain.is_resolved(chain.resolve_hops((), [PAGES[page][1] for page in gold]))
    for page in gold:
        assert not chain.is_resolved(chain.resolve_hops((), [PAGES[page][1]]))


@check_each("name", READING)
def test_passages_that_answer_together_are_enough_for_every_flow(name: str) -> None:
    item = Item("q", "Where did the ship of the sailor sink?", ("The Old Harbour",), (("b",), ("c",)))
    reader = SimulatedReader(chains=(GoldChain.from_item(item, PAGES),))
    gold = tuple(PAGES[page][1] for page in "bc")
    assert is_right(flow(name, reader, gold)(Query(item.question)), item)
    assert not is_right(flow(name, reader, gold[:1])(Query(item.question)), item)
    assert not is_right(flow(name, reader, gold[1:])(Query(item.question)), item)


def test_no_reader_knows_that_a_question_has_no_answer(world: World) -> None:
    """It goes on searching until a cap ends it, as the flow plans, and never says that its chain suffices."""
    reader = SimulatedReader.from_data(world.data, world.items)
    item = next(candidate for candidate in world.items if candidate.type == "unanswerable")
    for name, searches in (("react", 7), ("corag-oracle", 7), ("prefrag", 4)):
        asked_flow = flow(name, reader, world.others(item))
        with Run() as run, run.lane() as lane:
            answer = asked_flow(Query(item.question))
        assert (answer.text, answer.stop_reason, answer.faults) == ("I do not know.", "abstained", ())
        assert count_reasons(lane.count_calls(asked_flow)) == {}
        assert len(lane.retrievals) >= searches


def test_a_reader_that_remembers_a_hop_still_sees_that_new_passages_help(world: World) -> None:
    item = next(candidate for candidate in world.items if candidate.type == "2-hop")
    chain = next(
        candidate for candidate in SimulatedReader.from_data(world.data, world.items).chains if candidate.item == item
    )
    knows = next(
        reader
        for reader in (SimulatedReader(chains=(chain,), profile=Profile(know=0.5), seed=seed) for seed in range(99))
        if set(reader.resolved_hops(PromptView("", chain, {}, ""))) == {1}
    )
    new = {"new": [chain.hops[1].passage]}
    assert "<verdict>yes</verdict>" in knows.helps(PromptView("prefrag_helps", chain, new, ""))


def test_a_paraphrase_names_no_word_that_its_document_says(world: World) -> None:
    items = [item for item in world.items if item.type == "paraphrase"]
    assert items
    for item in items:
        (text,) = world.gold(item)
        telling = next(sentence for sentence in text.split(".") if "tells of" in sentence)
        words = set(plain(telling).split()) & set(plain(item.question).split())
        assert words <= {"a", "an", "the", "of", "who", "is", "in", "by", "from", "with", "on"}, (
            telling,
            item.question,
        )


def test_a_world_is_the_same_for_the_same_seed(tmp_path: Path) -> None:
    digests = [
        FictionalWorld(seed, people=40, questions=13).write(tmp_path / str(number))
        for number, seed in enumerate((3, 3, 4))
    ]
    assert digests[0] == digests[1] != digests[2]


def test_each_step_of_a_question_stands_in_its_gold_passage(world: World) -> None:
    types = {item.type for item in world.items}
    assert types >= {"1-hop", "6-hop", "comparison", "intersection", "aggregation", "yes-no", "unanswerable"}
    for item in world.items:
        for hop in item.decomposition:
            text = world.texts[hop.gold_id] + next(p.title for p in world.data.passages() if p.id == hop.gold_id)
            assert plain(hop.answer) in plain(text), (item.question, hop)


@pytest.mark.parametrize("variant", ["", "split", "contradicting"])
def test_the_spans_of_a_question_say_its_steps_and_its_aliases_mean_nothing_else(variant: Any) -> None:
    world = FictionalWorld(7, people=60, questions=60, variant=variant)
    texts = {row["id"]: row["text"] for row in world.documents()}
    titles = {row["title"] for row in world.documents()}
    items = list(world.items())
    for item in items:
        spans = item["meta"]["spans"]
        assert [(span["id"], span["text"]) for span in spans] == [
            (step["gold_id"], step["answer"]) for step in item["decomposition"]
        ]
        assert all(texts[span["id"]][span["start"] :].startswith(span["text"]) for span in spans)
        assert titles.isdisjoint(item["answers"][1:])
    assert sum(len(item["answers"]) > 1 for item in items) > 10


def test_the_sources_of_a_contradicting_world_disagree(tmp_path: Path) -> None:
    world = World(tmp_path, variant="contradicting")
    chained = [item for item in world.items if item.type in CHAINED]
    assert all(dict(item.meta).get("web_answer") for item in chained)
    for item in chained:
        for hop in json.loads(str(dict(item.meta)["web_decomposition"])):
            assert plain(hop["answer"]) in plain(world.texts[hop["gold_id"]])
    assert sum(dict(item.meta)["web_answer"] != item.answers[0] for item in chained) > len(chained) / 2


def test_the_documents_of_a_split_world_are_in_one_source_each(tmp_path: Path) -> None:
    world = World(tmp_path, variant="split")
    sources = [dict(passage.meta)["source"] for passage in world.data.passages()]
    assert 0.3 < sources.count("web") / len(sources) < 0.7


def test_a_world_does_not_replace_another_data_set_unless_told(tmp_path: Path) -> None:
    world = FictionalWorld(3, people=20, questions=4)
    assert world.write(tmp_path) == world.write(tmp_path, replace=False)
    with pytest.raises(
        DataError, match=r"holds another data set: corpus.jsonl and questions.jsonl there would be lost"
    ):
        FictionalWorld(4, people=20, questions=4).write(tmp_path, replace=False)
    assert FictionalWorld(3, people=20, questions=4).write(tmp_path)


def test_a_world_on_a_full_disk_leaves_no_file_that_is_cut_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    FictionalWorld(3, people=20, questions=4).write(tmp_path)
    previous_contents = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    write = Path.write_bytes

    def full(path: Path, data: bytes) -> int:
        if "questions" in path.name:
            write(path, data[:100])
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(path, data)

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(DataError, match=r"questions.jsonl cannot be written: No space left on device"):
        FictionalWorld(4, people=20, questions=4).write(tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == previous_contents
