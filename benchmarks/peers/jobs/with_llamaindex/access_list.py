from llama_index.core import SimpleDirectoryReader
from llama_index.core.node_parser import SentenceSplitter
from llama_index.core.vector_stores import FilterOperator, MetadataFilter, MetadataFilters
from llama_index.retrievers.bm25 import BM25Retriever


def metadata(path):
    return {"file_path": path, "reader": "staff" if "/contributing/" in path else "everybody"}


documents = SimpleDirectoryReader("docs", recursive=True, required_exts=[".md"], file_metadata=metadata).load_data()
nodes = SentenceSplitter(chunk_size=256, chunk_overlap=20).get_nodes_from_documents(documents)
for groups in (["staff", "everybody"], ["everybody"]):
    allowed = MetadataFilters(filters=[MetadataFilter(key="reader", operator=FilterOperator.IN, value=groups)])
    search = BM25Retriever.from_defaults(nodes=nodes, similarity_top_k=10, filters=allowed)
    found = search.retrieve("How is one generation pinned by a run?")
    print(groups, {hit.node.metadata["file_path"] for hit in found if hit.score > 0})
