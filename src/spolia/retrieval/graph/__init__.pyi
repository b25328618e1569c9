from spolia.retrieval.graph import build as build
from spolia.retrieval.graph import edges as edges
from spolia.retrieval.graph import links as links
from spolia.retrieval.graph import node_graph as node_graph
from spolia.retrieval.graph import walk as walk
