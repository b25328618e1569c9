"""What a store is made of and how: what `spolia index`, `spolia sync` and `spolia plan` take alike."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from spolia.cli.load_errors import in_words_of_the_command_line
from spolia.cli.model_profile import profile_of
from spolia.cli.models import embedder_for, embedding_of, model_at
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
from spolia.cli.sources import named_sources
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
    """The options."""

    store: StorePath
    sources: Annotated[
        list[str] | None, argument("SOURCE", "Folder with documents, address of a page, or s3://BUCKET/docs.")
    ] = None
    more: Annotated[
        Path | None, option("--sources FILE", "YAML file with sources: pages, files, database rows, APIs.")
    ] = None
    groups: Annotated[
        Path | None, option("--groups FILE", "YAML file that defines node groups; `chunk` defines the splitting.")
    ] = None
    known: Known = None
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
        given = {"seconds": self.file_seconds, "memory_mb": self.file_mb}
        return WorkerLimits().but(**{name: value for name, value in given.items() if value is not None})

    def places(self) -> list[Path | Source]:
        return named_sources(self.sources or (), self.more)

    def embeds_by(self, corpus: Corpus, *, rebuild: bool = False) -> Embedder:
        """The embedder that is named, else the one that the store was indexed with, else MiniLM.

        A file of groups may say itself how passages are embedded, with classes that only `known` has.
        """
        built = None if rebuild else embedding_of(corpus, MAIN)
        try:
            return embedder_for(self, built, MAIN, self.threads)
        except (GroupError, WiringError):
            if self.groups is None and not self.known:
                raise
            return embedder_for(self, None, MAIN, self.threads)

    def definitions(self, embedder: Embedder, known: tuple[Any, ...]) -> dict[str, Definition]:
        if self.groups is None:
            return {}

        llm = model_at(self.llm, self.model, profile_of(self.profile_file), self.think)
        given = {"embedder": embedder} | ({} if llm is None else {"llm": llm})
        with in_words_of_the_command_line():
            return load_definitions(self.groups, given, known)
