from spolia.stores.lexical import analysis as analysis
from spolia.stores.lexical import asker_bm25 as asker_bm25
from spolia.stores.lexical import field_terms as field_terms
from spolia.stores.lexical import index as index
from spolia.stores.lexical import index_replica as index_replica
from spolia.stores.lexical import index_writer as index_writer
