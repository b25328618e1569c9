from my_embedder import embed

from spolia import Corpus, Dense, Query, sync
from spolia.models import FunctionEmbedder

corpus = Corpus("docs.spolia")
sync("docs", corpus, embedder=FunctionEmbedder(embed))
for hit in Dense(corpus.group(), FunctionEmbedder(embed), top_k=5)(Query("Who may read a document?")):
    print(hit.node.uri, hit.score)
