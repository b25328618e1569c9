"""`spolia groups`: the node groups of a store, as a tree, and how they are built."""

from __future__ import annotations

from json import loads
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from spolia.cli.commands.index import unmade_data
from spolia.cli.exit_codes import Exit, subcommands
from spolia.cli.options import (
    WAIT_S,
    AllowEnv,
    AsJson,
    Known,
    ModelName,
    ModelUrl,
    StorePath,
    Wait,
    Weights,
    argument,
    option,
)
from spolia.cli.screen import Screen, one_line, text
from spolia.errors import ManifestMismatch

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rich.text import Text
    from rich.tree import Tree

    from spolia.cli.user_modules import UserModules
    from spolia.stores.corpus import Corpus, NodeGroup
    from spolia.stores.manifest import Manifest

Group = Annotated[str, argument("NAME", "Name of the group.")]
Groups = Annotated[list[str], argument("NAME…", "Names of groups.")]
Rebuild = Annotated[
    bool, option("--rebuild", "Rebuild it if it is made of something else by now, with those below it.")
]
DOCUMENT = "document"


def list_(store: StorePath, json: AsJson = False) -> Exit:
    """Draw the groups of a store as a tree, each below the one that it is made from, and those that could be built."""
    from spolia.stores.corpus import Corpus
    from spolia.stores.manifest import BUILT_IN

    screen = Screen(json=json)
    snapshot = Corpus(str(store)).latest()
    counts = dict(snapshot.stats().nodes)
    unbuilt = [name for name in BUILT_IN if name not in snapshot.manifests]
    built = {name: group_data(manifest, counts.get(name, 0)) for name, manifest in sorted(snapshot.manifests.items())}
    screen.give(groups=built, unbuilt=unbuilt)
    screen.show(_tree(snapshot.manifests, counts))
    screen.say(f"Built at their first use, or by `spolia groups build`: {', '.join(unbuilt) or 'none'}.")
    return Exit.DONE


def show(name: Group, store: StorePath, json: AsJson = False) -> Exit:
    """Show what a group is made of, as a file that `spolia groups add` reads."""
    from spolia.cli.group_names import refuse_unbuilt
    from spolia.flow_files.yaml_text import written
    from spolia.stores.corpus import Corpus

    screen = Screen(json=json)
    snapshot = Corpus(str(store)).latest()
    refuse_unbuilt(snapshot, name)
    manifest = snapshot.manifest(name)
    data = group_data(manifest, dict(snapshot.stats().nodes).get(name, 0))
    screen.give(**data)
    screen.write(written(_file(data)))
    return Exit.DONE


def build(
    names: Groups,
    store: StorePath,
    rebuild: Rebuild = False,
    known: Known = None,
    allow_env: AllowEnv = None,
    wait: Wait = WAIT_S,
    json: AsJson = False,
) -> Exit:
    """Build groups with those that they are made from; until they are published whole, readers see what there was.

    With --rebuild a group that the store has is cut and embedded again if its code, models or prompts have changed.
    """
    from spolia.cli.group_names import refuse_unknown
    from spolia.cli.user_modules import own
    from spolia.stores.corpus import Corpus

    corpus, mine = Corpus(str(store), wait), own(known)
    refuse_unknown(corpus, names, mine)
    wanted = [
        corpus.group(name, mine.groups[name])
        if name in mine.groups
        else _again(corpus, name, mine)
        if rebuild
        else corpus.group(name)
        for name in names
    ]
    return _built(Screen(json=json), wanted, rebuild, mine)


def add(
    name: Group,
    store: StorePath,
    file: Annotated[Path, option("--from FILE", "YAML or JSON file with its definition.")],
    rebuild: Rebuild = False,
    known: Known = None,
    allow_env: AllowEnv = None,
    weights: Weights = "",
    llm: ModelUrl = "",
    model: ModelName = "",
    wait: Wait = WAIT_S,
    json: AsJson = False,
) -> Exit:
    """Add a group that a file defines, and build it. The file may name {use: embedder} and, with --llm, {use: llm}.

    Of a file with several groups by name, as for `spolia sync --groups`, the one of this name is taken.
    """
    from spolia.cli.flow_parts import in_words_of_the_command_line, model_at, parts_of
    from spolia.cli.user_modules import own
    from spolia.flow_files.files import load_named
    from spolia.stores.corpus import Corpus

    screen, mine = Screen(json=json), own(known)
    with in_words_of_the_command_line():
        definition = load_named(name, file, parts_of(store, weights, model_at(llm, model)).given(), mine.operators)
    return _built(screen, [Corpus(store, wait).group(name, definition)], rebuild, mine)


def drop(name: Group, store: StorePath, wait: Wait = WAIT_S, json: AsJson = False) -> Exit:
    """Drop a group with its nodes; vectors are kept for when the same texts return."""
    from spolia.cli.group_names import refuse_undroppable
    from spolia.stores.corpus import Corpus

    screen = Screen(json=json)
    corpus = Corpus(str(store), wait)
    refuse_undroppable(there := corpus.latest(), name)
    with corpus.writer() as writer:
        writer.drop(name)
    screen.give(dropped=name)
    screen.show(f"dropped {name}")
    if name == "chunk":
        built = there.manifests[name]
        how = f"with vectors of {built.embedder}" if built.embedder else "without vectors, as --no-vectors says"
        screen.say(
            f"It is the group that `spolia index` makes: the next one makes it again, as its options then say. It was "
            f"made by {built.transform}, {how}."
        )
    return Exit.DONE


WHAT = "The node groups of a store: list, show, build, add, drop."
groups = subcommands(WHAT, list=list_, show=show, build=build, add=add, drop=drop)


def group_data(manifest: Manifest, nodes: int) -> dict[str, Any]:
    return {
        "group": manifest.group,
        "transform": loads(manifest.definition) if manifest.definition else manifest.transform,
        "parent": manifest.parent,
        "ref": manifest.ref,
        "embeddings": [
            {
                "embedder": how.embedder,
                "plain": loads(how.plain) if how.plain else None,
                "metric": how.metric,
                "index": loads(how.index),
            }
            for how in manifest.embeddings
        ],
        "nodes": nodes,
    }


def _file(data: dict[str, Any]) -> dict[str, Any]:
    """A group as the definition in a file; what has its default is left out."""
    embeddings = [
        {"embedder": how["plain"] or how["embedder"]}
        | ({"metric": how["metric"]} if how["metric"] != "cosine" else {})
        | ({"index": how["index"]} if how["index"] != "HNSW" else {})
        for how in data["embeddings"]
    ]
    found = {"transform": data["transform"], "parent": data["parent"], "ref": data["ref"], "embeddings": embeddings}
    return {name: value for name, value in found.items() if value and (name, value) != ("parent", DOCUMENT)}


def _again(corpus: Corpus, name: str, mine: UserModules) -> NodeGroup:
    """A group with the definition that the store has, as the code and the models are by now."""
    from spolia.stores.manifest import definition_by_now

    manifest = corpus.latest().manifests.get(name)
    return corpus.group(name, None if manifest is None else definition_by_now(manifest, mine.operators))


def _built(screen: Screen, wanted: list[NodeGroup], rebuild: bool, mine: UserModules) -> Exit:
    from spolia.stores.groups.materialise import materialise

    corpus = wanted[0].corpus
    before = corpus.latest()
    _tell_where_texts_go(screen, wanted, before.manifests, mine)
    total = before.stats().documents
    with screen.progress("building") as told:

        def tell(group: str, documents: int, embedded: int) -> None:
            told(documents, total, f"{group}, {embedded} embedded" if embedded else group)

        try:
            unmade = materialise(wanted, rebuild=rebuild, known=mine.operators, tell=tell)
        except ManifestMismatch as error:
            raise ManifestMismatch(f"{error} On the command line: the same command with --rebuild.") from error
    snapshot = corpus.latest()
    counts = dict(snapshot.stats().nodes)
    changed = {name for name, at in snapshot.indexes.items() if before.indexes.get(name) != at}
    names = {group.name for group in wanted} | changed
    nodes = {name: counts.get(name, 0) for name in sorted(names)}
    screen.give(built=sorted(changed), nodes=nodes, unmade=unmade_data(unmade))
    for name in sorted(names):
        screen.show(f"{name}  {counts.get(name, 0)} nodes, {'built' if name in changed else 'as it was'}")
    for lack in unmade:
        where = f"not in {lack.group}: {one_line(lack.uri)} " if lack.uri else f"in {lack.group},"
        screen.show(f"{where} {one_line(lack.reason, 300)}")
    return Exit.PARTLY if unmade else Exit.DONE


def _tell_where_texts_go(
    screen: Screen, wanted: list[NodeGroup], there: Mapping[str, Manifest], mine: UserModules
) -> None:
    """Of what is made: what is wanted, and what the store has below it."""
    from spolia.cli.destinations import tell_of_groups
    from spolia.stores.groups.group_build import with_those_below
    from spolia.stores.manifest import in_order

    given = {group.name: group.definition for group in wanted if group.definition is not None}
    made = with_those_below([group.name for group in wanted], in_order(dict(there)))
    tell_of_groups(screen, given.values(), [one for one in made if one.group not in given], mine.operators)


def _tree(manifests: Mapping[str, Manifest], counts: Mapping[str, int]) -> Tree:
    from rich.tree import Tree

    def label(name: str) -> Text:
        if name not in manifests:
            return text(name, "bold").append("  the whole documents", "not bold dim")
        manifest = manifests[name]
        found = text(name, "bold").append(f"  {counts.get(name, 0)} nodes", "not bold cyan")
        found.append(f"  {manifest.transform}", "not bold")
        for how in manifest.embeddings:
            found.append(f"  {how.embedder}, {how.metric}", "not bold dim")
        return found.append(f"  sees {manifest.ref}", "not bold dim") if manifest.ref else found

    def below(tree: Tree, names: Iterable[str]) -> Tree:
        for name in sorted(names):
            below(tree.add(label(name)), (m.group for m in manifests.values() if m.parent == name and m.group != name))
        return tree

    roots = (m.group for m in manifests.values() if m.parent == DOCUMENT and m.group != DOCUMENT)
    return below(Tree(label(DOCUMENT), guide_style="dim"), roots)
