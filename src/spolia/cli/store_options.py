"""What a store is made of and how: what `spolia index`, `spolia sync` and `spolia plan` take alike."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from spolia.cli.options import Known, ModelName, ModelUrl, Readers, StorePath, Weights

if TYPE_CHECKING:
    from spolia.indexing.sources.source import Source
    from spolia.indexing.workers.protocol import WorkerLimits
    from spolia.models.onnx.minilm import MiniLM
    from spolia.stores.definition import Definition

MAIN = "chunk"
"""The group that every store has."""


@dataclass(frozen=True)
class StoreOptions:
    """The options."""

    store: StorePath
    sources: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="SOURCE",
            help="Folder with documents; address of a page, or of files, as s3://BUCKET/docs.",
            show_default=False,
        ),
    ] = None
    more: Annotated[
        Path | None,
        typer.Option(
            "--sources",
            metavar="FILE",
            help="YAML file with sources: pages, files elsewhere, rows of databases, APIs.",
            show_default=False,
        ),
    ] = None
    groups: Annotated[
        Path | None,
        typer.Option(
            "--groups",
            metavar="FILE",
            help="YAML file with the definitions of node groups by name; `chunk` says how documents are cut.",
            show_default=False,
        ),
    ] = None
    known: Known = None
    vectors: Annotated[
        bool | None,
        typer.Option(
            "--vectors/--no-vectors", help="Embed the passages; by default where that helps.", show_default=False
        ),
    ] = None
    readers: Readers = None
    fields: Annotated[
        list[str] | None,
        typer.Option(
            "--field",
            metavar="NAME:KIND=DEFAULT",
            help="A metadata field to filter by, as author, year:int or year:int=0, one for each that there is to be.",
            show_default=False,
        ),
    ] = None
    weights: Weights = ""
    llm: ModelUrl = ""
    model: ModelName = ""
    threads: Annotated[int, typer.Option("--threads", min=1, help="CPU threads for the embedder.")] = 1
    workers: Annotated[
        int | None,
        typer.Option(
            "--workers", min=0, help="Processes that read files; by default one for each processor, 4 at most."
        ),
    ] = None
    file_seconds: Annotated[
        float | None,
        typer.Option(
            "--file-seconds",
            min=1,
            help="Seconds that reading one file may take, and one more for each megabyte of it; 120 by default.",
            show_default=False,
        ),
    ] = None
    file_mb: Annotated[
        int | None,
        typer.Option(
            "--file-mb",
            min=128,
            help="Megabytes of memory that reading one file may take; 2048 by default.",
            show_default=False,
        ),
    ] = None
    follow_links: Annotated[bool, typer.Option("--follow-links", help="Go where links lead out of DIR too.")] = False

    @property
    def limits(self) -> WorkerLimits:
        """What reading one file may take."""
        from spolia.indexing.workers.protocol import WorkerLimits

        given = {"seconds": self.file_seconds, "memory_mb": self.file_mb}
        return WorkerLimits().but(**{name: value for name, value in given.items() if value is not None})

    def places(self) -> list[Path | Source]:
        """Folders and sources."""
        from spolia.cli.sources import named

        return named(self.sources or (), self.more)

    def embedder(self) -> MiniLM:
        """The embedder, should there be one."""
        from spolia.models.onnx.minilm import MiniLM

        return MiniLM(self.weights, self.threads)

    def definitions(self, embedder: MiniLM, known: tuple[Any, ...]) -> dict[str, Definition]:
        """What the file of groups says."""
        if self.groups is None:
            return {}
        from spolia.cli.flow_parts import in_words_of_the_command_line, model_at
        from spolia.flow_files.files import load_definitions

        llm = model_at(self.llm, self.model)
        given = {"embedder": embedder} | ({} if llm is None else {"llm": llm})
        with in_words_of_the_command_line():
            return load_definitions(self.groups, given, known)
