"""What every backend of a store must keep, as a class of tests that the author of another one derives from.

    class TestMine(StoreContract):
        def address(self, place):
            return f"mine://server/{place.name}"

Everything is asked through `Corpus`, so that its lexical and vector indexes are tested with it. Expected results follow
the definition: by dictionaries, by comparing every vector, by the formula of BM25.
"""

from spolia.testing.stores.concurrency import Sharing
from spolia.testing.stores.publication import Carrying, Publishing
from spolia.testing.stores.search import Searching


class StoreContract(Publishing, Searching, Sharing, Carrying):
    """Tests of one kind of backend: `spolia.stores.backends.backend.Backend`, at the addresses that `address` gives."""
