from spolia.stores.snapshot import hit_order as hit_order
from spolia.stores.snapshot import lineage as lineage
from spolia.stores.snapshot import open_indexes as open_indexes
from spolia.stores.snapshot import records as records
from spolia.stores.snapshot import shared_array as shared_array
from spolia.stores.snapshot import snapshot as snapshot
