from dataclasses import replace
from pathlib import Path

from haystack import Document, Pipeline, component
from haystack.components.converters import TextFileToDocument
from haystack.components.preprocessors import DocumentSplitter
from haystack.components.retrievers.in_memory import InMemoryEmbeddingRetriever
from haystack.components.writers import DocumentWriter
from haystack.document_stores.in_memory import InMemoryDocumentStore
from my_embedder import embed


@component
class MyDocumentEmbedder:
    @component.output_types(documents=list[Document])
    def run(self, documents: list[Document]):
        vectors = embed([document.content for document in documents])
        return {"documents": [replace(plain, embedding=list(v)) for plain, v in zip(documents, vectors, strict=True)]}


@component
class MyTextEmbedder:
    @component.output_types(embedding=list[float])
    def run(self, text: str):
        return {"embedding": list(embed([text])[0])}


store = InMemoryDocumentStore(embedding_similarity_function="cosine")
indexing = Pipeline()
indexing.add_component("read", TextFileToDocument())
indexing.add_component("split", DocumentSplitter(split_by="word", split_length=200))
indexing.add_component("embed", MyDocumentEmbedder())
indexing.add_component("write", DocumentWriter(store))
indexing.connect("read", "split")
indexing.connect("split", "embed")
indexing.connect("embed", "write")
indexing.run({"read": {"sources": list(Path("docs").rglob("*.md"))}})

asking = Pipeline()
asking.add_component("embed", MyTextEmbedder())
asking.add_component("search", InMemoryEmbeddingRetriever(store, top_k=5))
asking.connect("embed", "search")
for document in asking.run({"embed": {"text": "Who may read a document?"}})["search"]["documents"]:
    print(document.meta["file_path"], document.score)
