from spolia.flow_files.federated_search import across as across
from spolia.flow_files.files import dump as dump
from spolia.flow_files.files import load as load
