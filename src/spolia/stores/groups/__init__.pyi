from spolia.stores.groups import addresses as addresses
from spolia.stores.groups import definitions as definitions
from spolia.stores.groups import group_build as group_build
from spolia.stores.groups import materialise as materialise
from spolia.stores.groups import nodes as nodes
