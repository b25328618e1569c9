from spolia.stores.backends.postgres import address as address
from spolia.stores.backends.postgres import dialect as dialect
from spolia.stores.backends.postgres import server as server
from spolia.stores.backends.postgres import session as session
from spolia.stores.backends.postgres import vectors as vectors
