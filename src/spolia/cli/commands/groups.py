"""`spolia groups`: the node groups of a store, as a tree, and how they are built."""

from pathlib import Path
from typing import Annotated

from spolia.cli import group_builds, node_groups
from spolia.cli.exit_codes import Exit
from spolia.cli.flow_parts import build_parts
from spolia.cli.group_tree import build_group_tree
from spolia.cli.load_errors import reword_load_errors
from spolia.cli.model_profile import load_profile
from spolia.cli.models import load_language_model
from spolia.cli.options import (
    WAIT_S,
    AllowEnv,
    AsJson,
    Known,
    ModelName,
    ModelUrl,
    ProfileFile,
    RerankOptions,
    StorePath,
    Think,
    Wait,
    WeightsFolder,
)
from spolia.cli.parameters import argument, option, subcommands
from spolia.cli.screen import Screen
from spolia.cli.user_modules import load_user_modules
from spolia.flow_files.files import load_definition
from spolia.flow_files.yaml_text import dump_yaml
from spolia.stores.corpus import Corpus
from spolia.stores.manifest import BUILT_IN

Group = Annotated[str, argument("NAME", "Name of the group.")]
Groups = Annotated[list[str], argument("NAME", "Names of groups.")]
Rebuild = Annotated[bool, option("--rebuild", "Rebuild it, and the groups below it, if its definition has changed.")]


def list_(store: StorePath, profile_file: ProfileFile = None, json: AsJson = False) -> Exit:
    """Draw the groups of a store as a tree, each below the one that it is made from, and those that could be built."""
    screen = Screen(json=json)
    snapshot = Corpus(str(store)).latest()
    counts = dict(snapshot.stats().nodes)
    unbuilt = [name for name in BUILT_IN if name not in snapshot.manifests]
    manifests = sorted(snapshot.manifests.items())
    built = {name: node_groups.group_data(manifest, counts.get(name, 0)) for name, manifest in manifests}
    screen.give(groups=built, unbuilt=unbuilt)
    screen.show(build_group_tree(snapshot.manifests, counts))
    screen.say(f"Built at their first use, or by `spolia groups build`: {', '.join(unbuilt) or 'none'}.")
    return Exit.DONE


def show(name: Group, store: StorePath, profile_file: ProfileFile = None, json: AsJson = False) -> Exit:
    """Show what a group is made of, as a file that `spolia groups add` reads."""
    screen = Screen(json=json)
    snapshot = Corpus(str(store)).latest()
    node_groups.refuse_unbuilt(snapshot, name)
    manifest = snapshot.manifest(name)
    data = node_groups.group_data(manifest, dict(snapshot.stats().nodes).get(name, 0))
    screen.give(**data)
    screen.write(dump_yaml(node_groups.definition_data(data)))
    return Exit.DONE


def build(
    names: Groups,
    store: StorePath,
    rebuild: Rebuild = False,
    modules: Known = None,
    allow_env: AllowEnv = None,
    wait: Wait = WAIT_S,
    profile_file: ProfileFile = None,
    json: AsJson = False,
) -> Exit:
    """Build groups and the groups that they are made from. Readers see the old state until the whole build is
    published.

    With --rebuild a group that the store has is cut and embedded again if its code, models or prompts have changed.
    """
    corpus, user_modules = Corpus(str(store), wait), load_user_modules(modules)
    node_groups.refuse_unknown(corpus, names, user_modules)
    requested_groups = [group_builds.define_group(corpus, name, user_modules, rebuild=rebuild) for name in names]
    return group_builds.build_groups(Screen(json=json), requested_groups, rebuild, user_modules)


def add(
    name: Group,
    store: StorePath,
    file: Annotated[Path, option("--from FILE", "YAML or JSON file with its definition.")],
    rebuild: Rebuild = False,
    modules: Known = None,
    allow_env: AllowEnv = None,
    weights: WeightsFolder = "",
    llm: ModelUrl = "",
    model: ModelName = "",
    think: Think = 0,
    wait: Wait = WAIT_S,
    profile_file: ProfileFile = None,
    json: AsJson = False,
) -> Exit:
    """Add a group that a file defines, and build it. The file may name {use: embedder} and, with --llm, {use: llm}.

    Of a file with several groups by name, as for `spolia sync --groups`, the one of this name is taken.
    """
    screen, user_modules = Screen(json=json), load_user_modules(modules)
    reader = load_language_model(llm, model, load_profile(profile_file), think)
    with reword_load_errors():
        parts = build_parts(store, RerankOptions(weights=weights), reader)
        definition = load_definition(name, file, parts.by_name(), user_modules.operators)
    return group_builds.build_groups(screen, [Corpus(store, wait).group(name, definition)], rebuild, user_modules)


def drop(
    name: Group, store: StorePath, wait: Wait = WAIT_S, profile_file: ProfileFile = None, json: AsJson = False
) -> Exit:
    """Drop a group with its nodes; vectors are kept for when the same texts return."""
    screen = Screen(json=json)
    corpus = Corpus(str(store), wait)
    node_groups.refuse_undroppable(snapshot := corpus.latest(), name)
    with corpus.writer() as writer:
        writer.drop(name)
    screen.give(dropped=name)
    screen.show(f"dropped {name}")
    if name == "chunk":
        built = snapshot.manifests[name]
        embedding_note = (
            f"with vectors of {built.embedder}" if built.embedder else "without vectors, as --no-vectors says"
        )
        screen.say(
            f"It is the group that `spolia index` makes: the next one makes it again, as its options then say. It was "
            f"made by {built.transform}, {embedding_note}."
        )
    return Exit.DONE


groups = subcommands(
    "groups",
    "The node groups of a store: list, show, build, add, drop.",
    list=list_,
    show=show,
    build=build,
    add=add,
    drop=drop,
)
