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


def group_by_name(corpus: Corpus, name: str, mine: UserModules, *, rebuild: bool) -> NodeGroup:
    """A group as modules define it; else, to rebuild it, as the store does, by the code and the models of now."""
    stored = corpus.latest().manifests.get(name) if rebuild and name not in mine.groups else None
    return corpus.group(name, mine.groups.get(name) if stored is None else current_definition(stored, mine.operators))


def build_groups(screen: Screen, wanted: list[NodeGroup], rebuild: bool, mine: UserModules) -> Exit:
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
    given = {group.name: group.definition for group in wanted if group.definition is not None}
    made = with_descendants([group.name for group in wanted], sort_groups(dict(there)))
    print_group_servers(screen, given.values(), [one for one in made if one.group not in given], mine.operators)
