"""Options of `spolia index`, `spolia sync` and `spolia plan`: what a store is made of, and how."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from spolia.cli.load_errors import reword_load_errors
from spolia.cli.model_profile import load_profile
from spolia.cli.models import first_embedding, load_embedder, load_language_model
from spolia.cli.options import (
    MAIN,
    AllowEnv,
    Known,
    ModelName,
    ModelOptions,
    ModelUrl,
    Readers,
    Redact,
    StorePath,
    Think,
    Vectors,
)
from spolia.cli.parameters import argument, option
from spolia.cli.sources import parse_sources
from spolia.errors import GroupError, WiringError
from spolia.flow_files.files import load_definitions
from spolia.indexing.workers.protocol import WorkerLimits

if TYPE_CHECKING:
    from spolia.indexing.sources.source import Source
    from spolia.models.protocols import Embedder
    from spolia.stores.corpus import Corpus
    from spolia.stores.definition import Definition


@dataclass(frozen=True)
class StoreOptions(ModelOptions):
    """Options of a store: its sources, groups, models, fields and readers."""

    store: StorePath
    sources: Annotated[
        list[str] | None, argument("SOURCE", "Folder with documents, address of a page, or s3://BUCKET/docs.")
    ] = None
    sources_file: Annotated[
        Path | None, option("--sources FILE", "YAML file with sources: pages, files, database rows, APIs.")
    ] = None
    groups: Annotated[
        Path | None, option("--groups FILE", "YAML file that defines node groups; `chunk` defines the splitting.")
    ] = None
    modules: Known = None
    allow_env: AllowEnv = None
    vectors: Vectors = None
    readers: Readers = None
    redact: Redact = None
    fields: Annotated[
        list[str] | None,
        option("--field NAME:KIND=DEFAULT", "Field to filter by: author, year:int, year:int=0; repeatable."),
    ] = None
    llm: ModelUrl = ""
    model: ModelName = ""
    think: Think = 0
    threads: Annotated[int, option("--threads", "CPU threads for the embedder.", min=1)] = 1
    workers: Annotated[
        int | None, option("--workers", "Processes that read files; default: one per CPU, at most 4.", min=0)
    ] = None
    file_seconds: Annotated[
        float | None, option("--file-seconds", "Seconds to read a file, plus 1 per megabyte; default: 120.", min=1)
    ] = None
    file_mb: Annotated[
        int | None, option("--file-mb", "Megabytes of memory to read a file; by default 2048.", min=128)
    ] = None
    follow_links: Annotated[bool, option("--follow-links", "Follow links that lead out of DIR.")] = False

    @property
    def limits(self) -> WorkerLimits:
        values = {"seconds": self.file_seconds, "memory_mb": self.file_mb}
        return WorkerLimits().but(**{name: value for name, value in values.items() if value is not None})

    def places(self) -> list[Path | Source]:
        return parse_sources(self.sources or (), self.sources_file)

    def choose_embedder(self, corpus: Corpus, *, rebuild: bool = False) -> Embedder:
        """Load the embedder that is named, else the one that the store was indexed with, else MiniLM.

        A file of groups may say itself how passages are embedded, with classes that only `modules` has.
        """
        built = None if rebuild else first_embedding(corpus, MAIN)
        try:
            return load_embedder(self, built, MAIN, self.threads)
        except (GroupError, WiringError):
            if self.groups is None and not self.modules:
                raise
            return load_embedder(self, None, MAIN, self.threads)

    def definitions(self, embedder: Embedder, known_operators: tuple[Any, ...]) -> dict[str, Definition]:
        if self.groups is None:
            return {}

        llm = load_language_model(self.llm, self.model, load_profile(self.profile_file), self.think)
        parts_by_name = {"embedder": embedder} | ({} if llm is None else {"llm": llm})
        with reword_load_errors():
            return load_definitions(self.groups, parts_by_name, known_operators)
