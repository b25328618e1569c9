"""Node groups as a tree on the screen, each below the group that it is made of."""

from collections.abc import Iterable, Mapping

from rich.tree import Tree

from spolia.cli.node_groups import DOCUMENT
from spolia.cli.screen import Renderable, text
from spolia.stores.manifest import Manifest


def build_group_tree(manifests: Mapping[str, Manifest], counts: Mapping[str, int]) -> Renderable:
    def label(name: str) -> Renderable:
        if name not in manifests:
            return text(name, "bold").append("  the whole documents", "not bold dim")
        manifest = manifests[name]
        line = text(name, "bold").append(f"  {counts.get(name, 0)} nodes", "not bold cyan")
        line.append(f"  {manifest.transform}", "not bold")
        for embedding in manifest.embeddings:
            line.append(f"  {embedding.embedder}, {embedding.metric}", "not bold dim")
        return line.append(f"  sees {manifest.ref}", "not bold dim") if manifest.ref else line

    def add_children(tree: Tree, names: Iterable[str]) -> Renderable:
        for name in sorted(names):
            add_children(
                tree.add(label(name)), (m.group for m in manifests.values() if m.parent == name and m.group != name)
            )
        return tree

    roots = (m.group for m in manifests.values() if m.parent == DOCUMENT and m.group != DOCUMENT)
    return add_children(Tree(label(DOCUMENT), guide_style="dim"), roots)
