import os

from spolia import BM25, Branch, Corpus, Dense, ReciprocalRankFusion, sync
from spolia.evaluation import DataSet, Experiment
from spolia.models import EmbeddingModel
from spolia.orchestration import ConvexCombination

embedder = EmbeddingModel("hashed", os.environ["OPENAI_BASE_URL"], dimension=384)
corpus = Corpus("docs.spolia")
sync("docs", corpus, embedder=embedder)
words, near = BM25(corpus.group(), top_k=10), Dense(corpus.group(), embedder, top_k=10)
flows = {
    "bm25": words,
    "dense": near,
    "scores": Branch(words, near) >> ConvexCombination(),
    "ranks": Branch(words, near) >> ReciprocalRankFusion(),
}
print(Experiment(flows, DataSet("questions.csv").items(), "R@5,MRR").run())
