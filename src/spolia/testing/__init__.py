"""Parts for the tests of flows and plug-ins: models without weights, a server without a model, contracts to check."""

from spolia.testing.contracts import check_embedder, check_language_model
from spolia.testing.hash_embedder import HashingEmbedder
from spolia.testing.server import OpenAIServer, ServedReply

__all__ = ["HashingEmbedder", "OpenAIServer", "ServedReply", "check_embedder", "check_language_model"]
