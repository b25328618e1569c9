"""Contract of store backends, as a class of tests that the author of a backend derives from.

    class TestMine(StoreContract):
        def address(self, place):
            return f"mine://server/{place.name}"

Everything is asked through `Corpus`, so that its lexical and vector indexes are tested with it. Expected results follow
the definition: by dictionaries, by comparing every vector, by the formula of BM25.
"""

from spolia.testing.stores.concurrency import ConcurrencyContract
from spolia.testing.stores.publication import PortabilityContract, PublicationContract
from spolia.testing.stores.search import SearchContract


class StoreContract(PublicationContract, SearchContract, ConcurrencyContract, PortabilityContract):
    """Tests of one kind of backend: `spolia.stores.backends.backend.Backend`, at the addresses that `address` gives."""
