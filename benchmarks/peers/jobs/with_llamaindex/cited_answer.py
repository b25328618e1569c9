import os

from llama_index.core import SimpleDirectoryReader
from llama_index.core.node_parser import SentenceSplitter
from llama_index.core.query_engine import CitationQueryEngine
from llama_index.llms.openai_like import OpenAILike
from llama_index.retrievers.bm25 import BM25Retriever

llm = OpenAILike(model="scripted", api_base=os.environ["OPENAI_BASE_URL"], is_chat_model=True)
documents = SimpleDirectoryReader("docs", recursive=True, required_exts=[".md"]).load_data()
nodes = SentenceSplitter(chunk_size=256, chunk_overlap=20).get_nodes_from_documents(documents)
engine = CitationQueryEngine(BM25Retriever.from_defaults(nodes=nodes, similarity_top_k=5), llm=llm)
answer = engine.query("Which databases hold the vectors of a store?")
print(answer)
for number, source in enumerate(answer.source_nodes, 1):
    if f"[{number}]" in str(answer):
        print(source.node.metadata["file_path"])
