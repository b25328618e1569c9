from spolia.retrieval.learned import features as features
from spolia.retrieval.learned import links as links
from spolia.retrieval.learned import ranker as ranker
from spolia.retrieval.learned import scores as scores
from spolia.retrieval.learned import term_weights as term_weights
