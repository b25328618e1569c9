import os

from spolia import BM25, ChatModel, Corpus, Query, Reader, sync

corpus = Corpus("docs.spolia")
sync("docs", corpus)
flow = BM25(corpus.group(), top_k=5) >> Reader(ChatModel("scripted", os.environ["OPENAI_BASE_URL"]))
answer = flow(Query("Which databases hold the vectors of a store?"))
print(answer, *(citation.place for citation in answer.citations))
