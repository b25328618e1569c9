import csv
import os
from pathlib import Path

from llama_index.core import SimpleDirectoryReader, VectorStoreIndex
from llama_index.core.llms import MockLLM
from llama_index.core.node_parser import SentenceSplitter
from llama_index.core.retrievers import QueryFusionRetriever
from llama_index.embeddings.openai_like import OpenAILikeEmbedding
from llama_index.retrievers.bm25 import BM25Retriever

embedder = OpenAILikeEmbedding("hashed", api_base=os.environ["OPENAI_BASE_URL"], embed_batch_size=100)
documents = SimpleDirectoryReader("docs", recursive=True, required_exts=[".md"]).load_data()
nodes = SentenceSplitter(chunk_size=256, chunk_overlap=20).get_nodes_from_documents(documents)
words = BM25Retriever.from_defaults(nodes=nodes, similarity_top_k=10)
near = VectorStoreIndex(nodes, embed_model=embedder).as_retriever(similarity_top_k=10)


def fused(mode):
    return QueryFusionRetriever(
        [words, near], llm=MockLLM(), mode=mode, num_queries=1, similarity_top_k=10, use_async=False
    )


flows = {"bm25": words, "dense": near, "ranks": fused("reciprocal_rerank"), "scores": fused("relative_score")}
with open("questions.csv", newline="") as file:
    rows = list(csv.DictReader(file))
for name, flow in flows.items():
    hits, ranks = 0, 0.0
    for row in rows:
        gold = str(Path("docs", row["file"]).resolve())
        found = [hit.node.metadata["file_path"] == gold for hit in flow.retrieve(row["question"])]
        hits += any(found[:5])
        ranks += 1 / (found.index(True) + 1) if any(found) else 0
    print(f"{name:8} R@5 {hits / len(rows):.3f}  MRR {ranks / len(rows):.3f}")
