import csv
from pathlib import Path

from haystack import Document, Pipeline
from haystack.components.converters import TextFileToDocument
from haystack.components.embedders import OpenAIDocumentEmbedder, OpenAITextEmbedder
from haystack.components.evaluators import DocumentMRREvaluator, DocumentRecallEvaluator
from haystack.components.joiners import DocumentJoiner
from haystack.components.preprocessors import DocumentSplitter
from haystack.components.retrievers.in_memory import InMemoryBM25Retriever, InMemoryEmbeddingRetriever
from haystack.components.writers import DocumentWriter
from haystack.document_stores.in_memory import InMemoryDocumentStore

store = InMemoryDocumentStore()
indexing = Pipeline()
indexing.add_component("read", TextFileToDocument(store_full_path=True))
indexing.add_component("split", DocumentSplitter(split_by="word", split_length=200))
indexing.add_component("embed", OpenAIDocumentEmbedder(model="hashed", progress_bar=False))
indexing.add_component("write", DocumentWriter(store))
indexing.connect("read", "split")
indexing.connect("split", "embed")
indexing.connect("embed", "write")
indexing.run({"read": {"sources": list(Path("docs").rglob("*.md"))}})

asking = Pipeline()
asking.add_component("bm25", InMemoryBM25Retriever(store, top_k=10))
asking.add_component("embed", OpenAITextEmbedder(model="hashed"))
asking.add_component("dense", InMemoryEmbeddingRetriever(store, top_k=10))
asking.connect("embed.embedding", "dense.query_embedding")
joins = {"ranks": "reciprocal_rank_fusion", "scores": "distribution_based_rank_fusion"}
for name, mode in joins.items():
    asking.add_component(name, DocumentJoiner(join_mode=mode, top_k=10))
    asking.connect("bm25", name)
    asking.connect("dense", name)

with open("questions.csv", newline="") as file:
    rows = list(csv.DictReader(file))
gold = [[Document(meta={"file_path": str(Path("docs", row["file"]))})] for row in rows]
found = {name: [] for name in ("bm25", "dense", *joins)}
for row in rows:
    inputs = {"bm25": {"query": row["question"]}, "embed": {"text": row["question"]}}
    result = asking.run(inputs, include_outputs_from=set(found))
    for name in found:
        found[name].append(result[name]["documents"])
recall = DocumentRecallEvaluator(document_comparison_field="meta.file_path")
mrr = DocumentMRREvaluator(document_comparison_field="meta.file_path")
for name, documents in found.items():
    at_5 = recall.run(gold, [ranked[:5] for ranked in documents])["score"]
    print(f"{name:8} R@5 {at_5:.3f}  MRR {mrr.run(gold, documents)['score']:.3f}")
