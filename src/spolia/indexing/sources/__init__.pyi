from spolia.indexing.sources import api as api
from spolia.indexing.sources import records as records
from spolia.indexing.sources import remote_files as remote_files
from spolia.indexing.sources import source as source
from spolia.indexing.sources import sql as sql
from spolia.indexing.sources import web as web
from spolia.indexing.sources import web_pages as web_pages
