from spolia.stores.backends.sqlite import connection as connection
from spolia.stores.backends.sqlite import folder as folder
from spolia.stores.backends.sqlite import salvage as salvage
