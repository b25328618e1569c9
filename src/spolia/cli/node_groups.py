"""Node groups on the command line: their names, what they are made of as data and as a tree, and how they are built."""

from collections.abc import Iterable, Mapping
from json import loads
from typing import Any

from spolia.cli.commands.index import unmade_data
from spolia.cli.destinations import tell_of_groups
from spolia.cli.exit_codes import Exit
from spolia.cli.screen import Renderable, Screen, one_line, text
from spolia.cli.user_modules import UserModules
from spolia.errors import GroupError, ManifestMismatch
from spolia.stores.corpus import Corpus, NodeGroup
from spolia.stores.manifest import BUILT_IN, Manifest, definition_by_now, in_order
from spolia.stores.snapshot.snapshot import Snapshot

DOCUMENT = "document"


def refuse_unknown(corpus: Corpus, names: Iterable[str], mine: UserModules) -> None:
    """Refuse groups that the store does not have, nobody defines, and that are not built in."""
    from spolia.stores.groups.definitions import unknown

    there = {*corpus.latest().manifests, *mine.groups}
    for name in names:
        if name not in there and name not in BUILT_IN:
            raise unknown(name, corpus.path, there)


def refuse_unbuilt(snapshot: Snapshot, name: str) -> None:
    """Refuse a group that the store does not have, though it may be built in."""
    from spolia.stores.groups.definitions import meant

    there, store = list(snapshot.manifests), snapshot.opened.store
    if name in there:
        return
    if name in BUILT_IN:
        raise GroupError(
            f"Group {name!r} is not built in {store} yet. Write: spolia groups build {name} --store {store}"
        )
    raise GroupError(
        f"There is no node group {name!r} in {store}.{meant(name, [*there, *BUILT_IN])} It has: {', '.join(there)}; "
        f"`spolia groups list` also lists groups that can be built."
    )


def refuse_undroppable(snapshot: Snapshot, name: str) -> None:
    """Refuse to drop a group that the store does not have."""
    if name not in snapshot.manifests and name in BUILT_IN:
        raise GroupError(f"Group {name!r} is not built in {snapshot.opened.store}, so it cannot be dropped.")
    refuse_unbuilt(snapshot, name)


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


def definition_data(data: dict[str, Any]) -> dict[str, Any]:
    """A group as the definition in a file; what has its default is left out."""
    embeddings = [
        {"embedder": how["plain"] or how["embedder"]}
        | ({"metric": how["metric"]} if how["metric"] != "cosine" else {})
        | ({"index": how["index"]} if how["index"] != "HNSW" else {})
        for how in data["embeddings"]
    ]
    found = {"transform": data["transform"], "parent": data["parent"], "ref": data["ref"], "embeddings": embeddings}
    return {name: value for name, value in found.items() if value and (name, value) != ("parent", DOCUMENT)}


def group_by_name(corpus: Corpus, name: str, mine: UserModules, *, rebuild: bool) -> NodeGroup:
    """A group as modules define it; else, to rebuild it, as the store does, by the code and the models of now."""
    stored = corpus.latest().manifests.get(name) if rebuild and name not in mine.groups else None
    return corpus.group(name, mine.groups.get(name) if stored is None else definition_by_now(stored, mine.operators))


def build_groups(screen: Screen, wanted: list[NodeGroup], rebuild: bool, mine: UserModules) -> Exit:
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
    """Report the groups being built: the requested ones, and those of the store below them."""
    from spolia.stores.groups.group_build import with_those_below

    given = {group.name: group.definition for group in wanted if group.definition is not None}
    made = with_those_below([group.name for group in wanted], in_order(dict(there)))
    tell_of_groups(screen, given.values(), [one for one in made if one.group not in given], mine.operators)


def group_tree(manifests: Mapping[str, Manifest], counts: Mapping[str, int]) -> Renderable:
    from rich.tree import Tree

    def label(name: str) -> Renderable:
        if name not in manifests:
            return text(name, "bold").append("  the whole documents", "not bold dim")
        manifest = manifests[name]
        found = text(name, "bold").append(f"  {counts.get(name, 0)} nodes", "not bold cyan")
        found.append(f"  {manifest.transform}", "not bold")
        for how in manifest.embeddings:
            found.append(f"  {how.embedder}, {how.metric}", "not bold dim")
        return found.append(f"  sees {manifest.ref}", "not bold dim") if manifest.ref else found

    def below(tree: Tree, names: Iterable[str]) -> Renderable:
        for name in sorted(names):
            below(tree.add(label(name)), (m.group for m in manifests.values() if m.parent == name and m.group != name))
        return tree

    roots = (m.group for m in manifests.values() if m.parent == DOCUMENT and m.group != DOCUMENT)
    return below(Tree(label(DOCUMENT), guide_style="dim"), roots)
