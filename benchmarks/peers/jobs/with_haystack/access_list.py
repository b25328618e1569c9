from pathlib import Path

from haystack import Pipeline
from haystack.components.converters import TextFileToDocument
from haystack.components.preprocessors import DocumentSplitter
from haystack.components.retrievers.in_memory import InMemoryBM25Retriever
from haystack.components.writers import DocumentWriter
from haystack.document_stores.in_memory import InMemoryDocumentStore

store = InMemoryDocumentStore()
indexing = Pipeline()
indexing.add_component("read", TextFileToDocument(store_full_path=True))
indexing.add_component("split", DocumentSplitter(split_by="word", split_length=200))
indexing.add_component("write", DocumentWriter(store))
indexing.connect("read", "split")
indexing.connect("split", "write")
sources = list(Path("docs").rglob("*.md"))
readers = [{"reader": "staff" if "contributing" in path.parts else "everybody"} for path in sources]
indexing.run({"read": {"sources": sources, "meta": readers}})

search = InMemoryBM25Retriever(store, top_k=10)
for groups in (["staff", "everybody"], ["everybody"]):
    allowed = {"field": "meta.reader", "operator": "in", "value": groups}
    found = search.run(query="How is one generation pinned by a run?", filters=allowed)["documents"]
    print(groups, {document.meta["file_path"] for document in found})
