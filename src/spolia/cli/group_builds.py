"""Node groups built on the command line."""

from collections.abc import Mapping

from spolia.cli.destinations import print_group_servers
from spolia.cli.exit_codes import Exit
from spolia.cli.results import unmade_data
from spolia.cli.screen import Screen, one_line
from spolia.cli.user_modules import UserModules
from spolia.errors import ManifestMismatch
from spolia.stores.corpus import Corpus, NodeGroup
from spolia.stores.groups.group_build import with_descendants
from spolia.stores.groups.materialise import materialise
from spolia.stores.manifest import Manifest, current_definition, sort_groups


def define_group(corpus: Corpus, name: str, mine: UserModules, *, rebuild: bool) -> NodeGroup:
    """Return a group as modules define it; to rebuild it, else as the store does, by present code and models."""
    stored = corpus.latest().manifests.get(name) if rebuild and name not in mine.groups else None
    return corpus.group(name, mine.groups.get(name) if stored is None else current_definition(stored, mine.operators))


def build_groups(screen: Screen, groups: list[NodeGroup], rebuild: bool, mine: UserModules) -> Exit:
    corpus = groups[0].corpus
    previous = corpus.latest()
    _print_build_servers(screen, groups, previous.manifests, mine)
    total = previous.stats().documents
    with screen.progress("building") as show_progress:

        def tell(group: str, documents: int, embedded: int) -> None:
            show_progress(documents, total, f"{group}, {embedded} embedded" if embedded else group)

        try:
            unmade = materialise(groups, rebuild=rebuild, operators=mine.operators, tell=tell)
        except ManifestMismatch as error:
            raise ManifestMismatch(f"{error} On the command line: the same command with --rebuild.") from error
    snapshot = corpus.latest()
    counts = dict(snapshot.stats().nodes)
    changed = {name for name, index_place in snapshot.indexes.items() if previous.indexes.get(name) != index_place}
    names = {group.name for group in groups} | changed
    nodes = {name: counts.get(name, 0) for name in sorted(names)}
    screen.give(built=sorted(changed), nodes=nodes, unmade=unmade_data(unmade))
    for name in sorted(names):
        screen.show(f"{name}  {counts.get(name, 0)} nodes, {'built' if name in changed else 'as it was'}")
    for lack in unmade:
        position = f"not in {lack.group}: {one_line(lack.uri)} " if lack.uri else f"in {lack.group},"
        screen.show(f"{position} {one_line(lack.reason, 300)}")
    return Exit.PARTLY if unmade else Exit.DONE


def _print_build_servers(
    screen: Screen, groups: list[NodeGroup], manifests: Mapping[str, Manifest], mine: UserModules
) -> None:
    """Report the groups being built: the requested ones, and those of the store below them."""
    definitions = {group.name: group.definition for group in groups if group.definition is not None}
    rebuilt = with_descendants([group.name for group in groups], sort_groups(dict(manifests)))
    print_group_servers(
        screen,
        definitions.values(),
        [manifest for manifest in rebuilt if manifest.group not in definitions],
        mine.operators,
    )
