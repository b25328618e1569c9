"""Packages that are imported on first use, all in one place: those of extras, and large ones that few runs need.

    from spolia.deferred import numpy as np

costs nothing; the first `np.zeros` imports numpy, which takes 89 ms of CPU. `spolia.errors.require` imports the
package of an extra, and names the extra where it is missing. The milliseconds are of CPU, in a new process.
"""

from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING, Any

EXTRAS: dict[str, tuple[str, str]] = {}
"""By module, the extra that installs it, and the package to name in the error."""


class Deferred(ModuleType):
    """A module that is imported when a name of it is read, as are the modules in it."""

    def __getattr__(self, name: str) -> Any:
        if name == "__wrapped__" or name.startswith("_mock"):  # doctest asks all that a module holds for them
            raise AttributeError(name)
        module = load_module(self.__name__)
        if self.__name__ == "numpy":  # by the thousand; others are found again each time, which takes 0.4 µs
            vars(self).update(vars(module))
        try:
            return getattr(module, name)
        except AttributeError:  # perhaps a module in it: `rich.table`
            path = f"{self.__name__}.{name}"
            if not hasattr(module, "__path__") or find_spec(path) is None:
                raise
            return load_module(path)


def load_module(name: str) -> ModuleType:
    """Import a module now."""
    return import_module(name)


def deferred(name: str, *, extra: str = "", package: str = "") -> Any:
    """Stand for a module that is imported on first use."""
    if extra:
        EXTRAS[name] = (extra, package or name)
    return Deferred(name)


if TYPE_CHECKING:
    import csv as csv
    import difflib as difflib
    import html as html
    import logging as logging
    import textwrap as textwrap
    import tomllib as tomllib
    from concurrent import futures as futures
    from importlib import metadata as metadata

    import chardet as chardet
    import chromadb as chromadb
    import chromadb.api.fastapi as chromadb_fastapi
    import chromadb.api.models.Collection as chromadb_collection
    import docling.datamodel.base_models as docling_models
    import docling.document_converter as docling_converter
    import docx as docx
    import docx.opc.part
    import docx.package
    import docx.parts.document
    import fsspec as fsspec
    import huggingface_hub as huggingface_hub
    import kglite as kglite
    import lancedb as lancedb
    import lightgbm as lightgbm
    import llama_cpp as llama_cpp
    import llama_cpp.llama_chat_format
    import milvus_lite.adapter.grpc.server as milvus_server
    import neo4j as neo4j
    import numpy as numpy
    import olefile as olefile
    import onnxruntime as onnxruntime
    import opensearchpy as opensearchpy
    import optuna as optuna
    import pptx as pptx
    import psycopg as psycopg
    import psycopg.sql
    import pyarrow as pyarrow
    import pyarrow.parquet
    import pymilvus as pymilvus
    import python_calamine as python_calamine
    import qdrant_client as qdrant_client
    import qdrant_client.models
    import rich as rich
    import rich.console
    import rich.padding
    import rich.progress
    import rich.table
    import rich.text
    import sqlalchemy as sqlalchemy
    import sqlglot as sqlglot
    import sqlglot.expressions as exp
    import tantivy as tantivy
    import tokenizers as tokenizers
    import torch as torch
    import trafilatura as trafilatura
    import transformers as transformers
    import watchfiles._rust_notify as watchfiles
    import xberg as xberg
    import yaml as yaml
    from lxml import etree as etree
    from PIL import Image as Image
    from selectolax import lexbor as lexbor
else:
    chardet = deferred("chardet")  # 53 ms, for text that is not UTF-8
    chromadb = deferred("chromadb")
    chromadb_collection = deferred("chromadb.api.models.Collection")
    chromadb_fastapi = deferred("chromadb.api.fastapi")
    csv = deferred("csv")  # 1 ms, for prices of models
    difflib = deferred("difflib")  # 1 ms, for the advice of errors
    docling_converter = deferred("docling.document_converter", extra="docling", package="docling")
    docling_models = deferred("docling.datamodel.base_models", extra="docling", package="docling")
    docx = deferred("docx", extra="office", package="python-docx")
    etree = deferred("lxml.etree")  # for Office files
    fsspec = deferred("fsspec", extra="fsspec")
    futures = deferred("concurrent.futures")  # 5 ms, for a run that uses threads
    html = deferred("html")  # 1.5 ms, for notebooks
    huggingface_hub = deferred("huggingface_hub")
    Image = deferred("PIL.Image", extra="local", package="pillow")
    kglite = deferred("kglite", extra="graph")
    lancedb = deferred("lancedb")
    lexbor = deferred("selectolax.lexbor")  # 17 ms, for HTML
    lightgbm = deferred("lightgbm", extra="trees")
    llama_cpp = deferred("llama_cpp", extra="gguf")
    logging = deferred("logging")  # 4 ms, where a waiting call cannot be closed
    metadata = deferred("importlib.metadata")  # 16 ms, for versions and hints of what to install
    milvus_server = deferred("milvus_lite.adapter.grpc.server")
    neo4j = deferred("neo4j", extra="neo4j")
    numpy = deferred("numpy")  # 89 ms; a search by words, and an operator that only holds its fields, run without it
    olefile = deferred("olefile", extra="mail")
    onnxruntime = deferred("onnxruntime", extra="embeddings")
    opensearchpy = deferred("opensearchpy")
    optuna = deferred("optuna", extra="tpe")
    pptx = deferred("pptx", extra="office", package="python-pptx")
    psycopg = deferred("psycopg", extra="postgres")
    pyarrow = deferred("pyarrow")
    pymilvus = deferred("pymilvus")
    python_calamine = deferred("python_calamine", extra="office", package="python-calamine")
    qdrant_client = deferred("qdrant_client")
    rich = deferred("rich")  # 50 ms with its console; output for programs needs none of it
    sqlalchemy = deferred("sqlalchemy", extra="sql")
    sqlglot = deferred("sqlglot", extra="text-to-sql")
    exp = deferred("sqlglot.expressions")
    tantivy = deferred("tantivy")  # 12 ms; an analyzer is a field of operators that may never search
    textwrap = deferred("textwrap")  # 1 ms, where the source of a function is read
    tokenizers = deferred("tokenizers", extra="embeddings")
    tomllib = deferred("tomllib")  # 3 ms, for profiles
    torch = deferred("torch", extra="local")
    trafilatura = deferred("trafilatura")  # 400 ms, for web pages
    transformers = deferred("transformers", extra="local")
    watchfiles = deferred("watchfiles._rust_notify")
    xberg = deferred("xberg", extra="xberg")
    yaml = deferred("yaml")  # 10 ms, for Markdown with front matter
