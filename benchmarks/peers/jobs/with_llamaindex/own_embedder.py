from llama_index.core import SimpleDirectoryReader, VectorStoreIndex
from llama_index.core.embeddings import BaseEmbedding
from llama_index.core.node_parser import SentenceSplitter
from my_embedder import embed


class MyEmbedding(BaseEmbedding):
    def _get_text_embedding(self, text):
        return list(embed([text])[0])

    def _get_text_embeddings(self, texts):
        return [list(vector) for vector in embed(texts)]

    def _get_query_embedding(self, query):
        return self._get_text_embedding(query)

    async def _aget_query_embedding(self, query):
        return self._get_text_embedding(query)


documents = SimpleDirectoryReader("docs", recursive=True, required_exts=[".md"]).load_data()
nodes = SentenceSplitter(chunk_size=256, chunk_overlap=20).get_nodes_from_documents(documents)
index = VectorStoreIndex(nodes, embed_model=MyEmbedding())
for hit in index.as_retriever(similarity_top_k=5).retrieve("Who may read a document?"):
    print(hit.node.metadata["file_path"], hit.score)
