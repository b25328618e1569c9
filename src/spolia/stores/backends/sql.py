"""Every SQL statement of the store, in SQLite's dialect. Nothing else in the package knows SQL.

Rows live from generation `birth` until before generation `death`; a live row has the largest number as `death`.
Each row has a digest (`rows.row_digest`) of what no index repeats (`GUARDED`), so that damage to any byte can be found.
"""

from collections.abc import Sized

APPLICATION_ID = 0x53504C41
SCHEMA_VERSION = 9
ALIVE = 4611686018427387904
"""The generation at which a row dies that is still alive: later than any."""

SCHEMA = (
    # AUTOINCREMENT gives no key twice: indexes and snapshots know nodes by keys, also dead ones. Foreign keys are
    # checked at the commit: a document may end before its sources name the next one.
    """CREATE TABLE store (uuid TEXT NOT NULL, digest BLOB NOT NULL DEFAULT '')""",
    """CREATE TABLE manifests (
        grp TEXT PRIMARY KEY, manifest TEXT NOT NULL, digest BLOB NOT NULL DEFAULT '',
        copy TEXT NOT NULL DEFAULT '') WITHOUT ROWID""",
    """CREATE TABLE generations (
        generation INTEGER PRIMARY KEY, indexes TEXT NOT NULL, fields TEXT NOT NULL,
        digest BLOB NOT NULL DEFAULT '')""",
    """CREATE TABLE publications (generation INTEGER PRIMARY KEY, id TEXT NOT NULL, digest BLOB NOT NULL DEFAULT '')""",
    """CREATE TABLE audiences (
        id INTEGER PRIMARY KEY AUTOINCREMENT, digest BLOB NOT NULL UNIQUE, readers TEXT NOT NULL)""",
    """CREATE TABLE documents (
        key INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL, hash BLOB NOT NULL, text TEXT NOT NULL,
        title TEXT NOT NULL, media_type TEXT NOT NULL, pages TEXT NOT NULL, headings TEXT NOT NULL,
        regions TEXT NOT NULL, boxes BLOB NOT NULL, meta TEXT NOT NULL, audience INTEGER NOT NULL,
        birth INTEGER NOT NULL, death INTEGER NOT NULL, digest BLOB NOT NULL DEFAULT '', UNIQUE (id, death))""",
    f"""CREATE INDEX documents_dead ON documents (death) WHERE death < {ALIVE}""",
    """CREATE TABLE sources (
        uri TEXT NOT NULL, document INTEGER REFERENCES documents (key) DEFERRABLE INITIALLY DEFERRED,
        size INTEGER NOT NULL, mtime_ns INTEGER NOT NULL, created_ns INTEGER NOT NULL, accessed_ns INTEGER NOT NULL,
        content_hash TEXT NOT NULL, status TEXT NOT NULL,
        error TEXT NOT NULL, report TEXT NOT NULL, birth INTEGER NOT NULL, death INTEGER NOT NULL,
        reader TEXT NOT NULL DEFAULT '', digest BLOB NOT NULL DEFAULT '', UNIQUE (uri, death))""",
    """CREATE INDEX sources_document ON sources (document, uri)""",
    """CREATE INDEX sources_born ON sources (birth)""",
    f"""CREATE INDEX sources_dead ON sources (death) WHERE death < {ALIVE}""",
    """CREATE TABLE cursors (
        source TEXT NOT NULL, item TEXT NOT NULL, cursor TEXT NOT NULL, birth INTEGER NOT NULL,
        digest BLOB NOT NULL DEFAULT '', PRIMARY KEY (source, item)) WITHOUT ROWID""",
    """CREATE TABLE nodes (
        key INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL, grp TEXT NOT NULL,
        document INTEGER NOT NULL REFERENCES documents (key) DEFERRABLE INITIALLY DEFERRED, number INTEGER NOT NULL,
        hash BLOB NOT NULL, text TEXT NOT NULL, context TEXT NOT NULL, search_text TEXT NOT NULL, start INTEGER,
        stop INTEGER, first_page INTEGER, last_page INTEGER, first_line INTEGER, last_line INTEGER,
        parent TEXT NOT NULL, meta TEXT NOT NULL, audience INTEGER NOT NULL,
        birth INTEGER NOT NULL, death INTEGER NOT NULL, digest BLOB NOT NULL DEFAULT '',
        seconds TEXT NOT NULL DEFAULT '', UNIQUE (id, death))""",
    """CREATE INDEX nodes_document ON nodes (document, grp, number)""",
    """CREATE INDEX nodes_parent ON nodes (parent)""",
    f"""CREATE INDEX nodes_dead ON nodes (death) WHERE death < {ALIVE}""",
    """CREATE TABLE unmade (
        document INTEGER NOT NULL REFERENCES documents (key) ON DELETE CASCADE, grp TEXT NOT NULL, error TEXT NOT NULL,
        digest BLOB NOT NULL DEFAULT '', PRIMARY KEY (document, grp)) WITHOUT ROWID""",
    """CREATE INDEX unmade_group ON unmade (grp)""",
    """CREATE TABLE images (
        document INTEGER NOT NULL REFERENCES documents (key) ON DELETE CASCADE, hash TEXT NOT NULL, data BLOB NOT NULL,
        digest BLOB NOT NULL DEFAULT '', PRIMARY KEY (document, hash))""",
    """CREATE TABLE segments (
        embedder TEXT NOT NULL, segment INTEGER NOT NULL, dimension INTEGER NOT NULL, count INTEGER NOT NULL,
        bytes INTEGER NOT NULL, PRIMARY KEY (embedder, segment)) WITHOUT ROWID""",
    """CREATE TABLE vectors (
        embedder TEXT NOT NULL, hash BLOB NOT NULL, segment INTEGER NOT NULL, row INTEGER NOT NULL,
        PRIMARY KEY (embedder, hash), FOREIGN KEY (embedder, segment) REFERENCES segments (embedder, segment)
        DEFERRABLE INITIALLY DEFERRED)
        WITHOUT ROWID""",
    """CREATE INDEX vectors_segment ON vectors (embedder, segment)""",
    """CREATE TABLE embedded (
        grp TEXT NOT NULL, embedder TEXT NOT NULL, key INTEGER NOT NULL, digest BLOB NOT NULL,
        PRIMARY KEY (grp, embedder)) WITHOUT ROWID""",
    f"""PRAGMA application_id = {APPLICATION_ID}""",
    f"""PRAGMA user_version = {SCHEMA_VERSION}""",
)


def places(columns: Sized) -> str:
    return ", ".join("?" * len(columns))


def _places(columns: str) -> str:
    return places(columns.split(","))


_AT = "birth <= :at AND death > :at"
_DOCUMENT_AT, _NODE_AT = (f"{row}.birth <= :at AND {row}.death > :at" for row in "dn")
"""What lives at a generation."""

# Opening.
IN_LARGE_PAGES = "PRAGMA page_size = 8192"
"""Before the first table: a row with a passage fits into a page, and an index over ids has fewer to write."""
WRITE_AHEAD = "PRAGMA journal_mode = WAL"
DURABLE = "PRAGMA synchronous = FULL"  # with NORMAL, a loss of power takes back the last commits
WITH_FOREIGN_KEYS = "PRAGMA foreign_keys = ON"
QUERY_ONLY = "PRAGMA query_only = ON"
QUERY_AND_WRITE = "PRAGMA query_only = OFF"
APPLICATION = "PRAGMA application_id"
VERSION = "PRAGMA user_version"
SET_VERSION = f"PRAGMA user_version = {SCHEMA_VERSION}"
BEGIN = "BEGIN IMMEDIATE"  # takes SQLite's lock now: what is read before a change stays true
COMMIT = "COMMIT"
ROLLBACK = "ROLLBACK"
MARK = "SAVEPOINT mark"
KEEP = "RELEASE mark"
UNDO = "ROLLBACK TO mark"
NEW_STORE = "INSERT INTO store VALUES (?, ?)"
UUID = "SELECT uuid FROM store"

# Generations and manifests.
PUBLISHED = "SELECT generation, id FROM publications ORDER BY generation DESC LIMIT 1"
PUBLISHED_WHOLE = """SELECT g.generation, p.id, g.indexes, g.fields,
    (SELECT '[' || coalesce(group_concat(manifest), '') || ']' FROM manifests)
    FROM generations g JOIN publications p ON p.generation = g.generation ORDER BY g.generation DESC LIMIT 1"""
WAS_PUBLISHED = "SELECT 1 FROM publications WHERE generation = ? AND id = ?"
PUBLICATION_ID = "SELECT id FROM publications WHERE generation = ?"
ADD_PUBLICATION = "INSERT INTO publications VALUES (?, ?, ?)"
FORGET_PUBLICATIONS = "DELETE FROM publications WHERE generation <= ?"
GENERATIONS = "SELECT generation, indexes FROM generations ORDER BY generation"
IS_KEPT = "SELECT 1 FROM generations WHERE generation = ?"
FIELDS = "SELECT fields FROM generations WHERE generation = ?"
PUBLISH = "INSERT INTO generations VALUES (?, ?, ?, ?)"
FORGET = "DELETE FROM generations WHERE generation = ?"
MANIFESTS = "SELECT manifest FROM manifests ORDER BY grp"
DROP_MANIFEST = "DELETE FROM manifests WHERE grp = ?"
DEFINE = """INSERT INTO manifests VALUES (:grp, :manifest, :digest, :manifest) ON CONFLICT (grp)
    DO UPDATE SET manifest = excluded.manifest, digest = excluded.digest, copy = excluded.copy"""

# Reader lists.
ADD_AUDIENCE = "INSERT INTO audiences (digest, readers) VALUES (?, ?) ON CONFLICT (digest) DO NOTHING"
AUDIENCE = "SELECT id FROM audiences WHERE digest = ?"
AUDIENCES = "SELECT id, readers FROM audiences WHERE id > ? ORDER BY id"
READERS = "SELECT readers FROM audiences WHERE id = ?"
IS_RESTRICTED = "SELECT 1 FROM audiences LIMIT 1"
IS_RESTRICTED_NOW = f"SELECT 1 FROM documents WHERE audience <> 0 AND death = {ALIVE} LIMIT 1"
CHANGED_READERS = f"""SELECT DISTINCT d.id, d.audience, present.audience FROM documents d
    JOIN sources held ON held.document = d.key AND held.birth <= :at AND held.death > :at
    JOIN sources holds ON holds.uri = held.uri AND holds.death = {ALIVE}
    JOIN documents present ON present.key = holds.document
    WHERE d.death < {ALIVE} AND d.death > :at AND d.birth <= :at AND present.audience <> d.audience"""

# Documents.
DOCUMENT_COLUMNS = "d.id, d.text, d.title, d.media_type, d.pages, d.headings, d.regions, d.boxes, d.meta, d.audience"
DOCUMENT_ROW = "id, hash, text, title, media_type, pages, headings, regions, boxes, meta, audience, birth"
URI = "SELECT min(s.uri) FROM sources s WHERE s.document = d.key AND s.birth <= :at AND s.death > :at"
DOCUMENT = f"SELECT {DOCUMENT_COLUMNS}, ({URI}) FROM documents d WHERE d.id = :id AND d.birth <= :at AND d.death > :at"
BOXES = "SELECT d.boxes, d.audience FROM documents d WHERE d.id = :id AND d.birth <= :at AND d.death > :at"
DOCUMENTS = f"SELECT {DOCUMENT_COLUMNS}, ({URI}) FROM documents d WHERE d.birth <= :at AND d.death > :at ORDER BY d.id"
DOCUMENTS_BY_KEY = DOCUMENTS.replace("ORDER BY d.id", "ORDER BY d.key")
LIVE_DOCUMENT = f"SELECT key, hash, birth, meta FROM documents WHERE id = ? AND death = {ALIVE}"
LIVE_DOCUMENTS = f"""SELECT d.id, d.key, d.hash, d.birth, d.meta FROM json_each(:ids) wanted
    CROSS JOIN documents d ON d.id = wanted.value WHERE d.death = {ALIVE}"""
KEYS_OF_DOCUMENTS = f"""SELECT d.id, d.key FROM json_each(:ids) wanted CROSS JOIN documents d ON d.id = wanted.value
    WHERE d.death = {ALIVE}"""
ROW_OF_DOCUMENT = f"SELECT {DOCUMENT_ROW}, digest FROM documents WHERE key = ?"
ADD_DOCUMENT = f"""INSERT INTO documents ({DOCUMENT_ROW}, digest, death)
    VALUES ({_places(DOCUMENT_ROW)}, ?, {ALIVE}) RETURNING key"""
ADD_DOCUMENTS = ADD_DOCUMENT.removesuffix(" RETURNING key")
KEYS_AFTER = f"SELECT id, key FROM documents WHERE key > ? AND death = {ALIVE}"
IS_REFERENCED = f"SELECT 1 FROM sources WHERE document = ? AND death = {ALIVE} LIMIT 1"

# Sources.
SOURCE_COLUMNS = (
    "s.uri, s.size, s.mtime_ns, s.content_hash, coalesce(d.id, ''), s.status, s.error, s.report, s.created_ns, "
    "s.accessed_ns, s.reader"
)
SOURCES = (
    f"SELECT {SOURCE_COLUMNS} FROM sources s LEFT JOIN documents d ON d.key = s.document "
    "WHERE s.birth <= :at AND s.death > :at ORDER BY s.uri"
)
# CROSS JOIN keeps SQLite from changing the order: few wanted rows, each found by the index of the other table.
_WANTED = "json_each(:uris) wanted CROSS JOIN sources s ON s.uri = wanted.value"
# '0' is the character after '/': the uris between the two are those inside.
_INSIDE = "json_each(:uris) wanted CROSS JOIN sources s ON s.uri > wanted.value || '/' AND s.uri < wanted.value || '0'"
"""The sources inside the requested ones."""
SOURCES_OF_URIS = f"""SELECT {SOURCE_COLUMNS} FROM {_WANTED} LEFT JOIN documents d ON d.key = s.document
    WHERE s.birth <= :at AND s.death > :at ORDER BY s.uri"""
# Ids come last, so that in a dictionary an id counts more than a uri of the same text.
NAMED = """SELECT wanted.value, d.id, 0 AS is_id FROM json_each(:ids) wanted
    CROSS JOIN sources s ON s.uri = wanted.value JOIN documents d ON d.key = s.document
    WHERE s.birth <= :at AND s.death > :at
    UNION SELECT wanted.value, d.id, 1 AS is_id FROM json_each(:ids) wanted
    CROSS JOIN documents d ON d.id = wanted.value WHERE d.birth <= :at AND d.death > :at ORDER BY is_id"""
BIRTHS = f"SELECT uri, birth FROM sources WHERE death = {ALIVE}"
BIRTHS_OF_URIS = f"SELECT s.uri, s.birth FROM {_WANTED} WHERE s.death = {ALIVE}"
BORN = f"SELECT uri, birth FROM sources WHERE birth = ? AND death = {ALIVE}"
STAMPS = f"SELECT uri, size, mtime_ns, status, reader FROM sources WHERE death = {ALIVE}"
STAMPS_OF_URIS = f"""SELECT s.uri, s.size, s.mtime_ns, s.status, s.reader FROM {_WANTED} WHERE s.death = {ALIVE}
    UNION SELECT s.uri, s.size, s.mtime_ns, s.status, s.reader FROM {_INSIDE} WHERE s.death = {ALIVE}"""
LABELLED = f"""SELECT s.uri, s.size, s.mtime_ns, s.status, s.reader, s.report, d.audience FROM {_WANTED}
    LEFT JOIN documents d ON d.key = s.document WHERE s.birth <= :at AND s.death > :at"""
URIS_BETWEEN = f"SELECT uri FROM sources WHERE uri > :after AND uri < :before AND {_AT} ORDER BY uri LIMIT :limit"
LIVE_SOURCE = f"SELECT document FROM sources WHERE uri = ? AND death = {ALIVE}"
LIVE_SOURCES_OF = f"""SELECT {SOURCE_COLUMNS} FROM sources s LEFT JOIN documents d ON d.key = s.document
    WHERE s.document = ? AND s.death = {ALIVE}"""
SOURCE_ROW = """uri, size, mtime_ns, content_hash, status, error, report, created_ns, accessed_ns, reader, birth,
    document"""
ADD_SOURCE = f"INSERT INTO sources ({SOURCE_ROW}, digest, death) VALUES ({_places(SOURCE_ROW)}, ?, {ALIVE})"
SET_SOURCE = f"""UPDATE sources SET size = ?, mtime_ns = ?, content_hash = ?, status = ?, error = ?, report = ?,
    created_ns = ?, accessed_ns = ?, reader = ?, digest = ? WHERE uri = ? AND birth = ? AND death = {ALIVE}"""
UNSAY_SOURCE = f"DELETE FROM sources WHERE uri = :uri AND birth = :next AND death = {ALIVE}"
END_SOURCE = f"UPDATE sources SET death = :next WHERE uri = :uri AND death = {ALIVE}"
_DEPENDENT = """status = 'indexed' AND (report LIKE '%"lacks":%' OR report LIKE '%"beside":%')"""
SOURCES_DEPENDENT = f"SELECT uri, report FROM sources WHERE {_DEPENDENT} AND death = {ALIVE}"
SOURCES_DEPENDENT_OF_URIS = f"SELECT s.uri, s.report FROM {_WANTED} WHERE {_DEPENDENT} AND s.death = {ALIVE}"
READERS_OF_SOURCES = f"""SELECT s.uri, d.audience FROM sources s JOIN documents d ON d.key = s.document
    WHERE s.death = {ALIVE}"""
READERS_OF_URIS = f"""SELECT s.uri, d.audience FROM {_WANTED} JOIN documents d ON d.key = s.document
    WHERE s.death = {ALIVE}
    UNION SELECT s.uri, d.audience FROM {_INSIDE} JOIN documents d ON d.key = s.document WHERE s.death = {ALIVE}"""
_HELD = f"""SELECT d.id, d.audience, CASE WHEN EXISTS (SELECT 1 FROM sources o WHERE o.document = d.key
    AND o.uri <> s.uri AND o.death = {ALIVE}) THEN 2 ELSE 1 END"""
HELD = f"{_HELD} FROM sources s JOIN documents d ON d.key = s.document WHERE s.death = {ALIVE}"
HELD_OF_URIS = f"""{_HELD} FROM {_WANTED} JOIN documents d ON d.key = s.document WHERE s.death = {ALIVE}
    UNION {_HELD} FROM {_INSIDE} JOIN documents d ON d.key = s.document WHERE s.death = {ALIVE}"""
HELD_OF_ID = (
    f"{_HELD} FROM documents d JOIN sources s ON s.document = d.key WHERE d.id = ? AND s.death = {ALIVE} LIMIT 1"
)

READERS_AT = "SELECT DISTINCT reader FROM sources WHERE birth <= :at AND death > :at AND reader <> '' ORDER BY reader"

# How far sources were read. What is read later than a generation was published is not known to it.
CURSORS = "SELECT item, cursor FROM cursors WHERE source = ? ORDER BY item"
CURSOR = "SELECT cursor, birth FROM cursors WHERE source = ? AND item = ?"
ALL_CURSORS = "SELECT source, item, cursor FROM cursors WHERE source <> '' ORDER BY source, item"
CURSORS_AT = """SELECT source, item, cursor FROM cursors WHERE source <> '' AND source NOT IN
    (SELECT source FROM cursors WHERE birth > :at) ORDER BY source, item"""
SET_CURSOR = """INSERT INTO cursors VALUES (?, ?, ?, ?, ?) ON CONFLICT (source, item)
    DO UPDATE SET cursor = excluded.cursor, birth = excluded.birth, digest = excluded.digest"""
DROP_CURSOR = "DELETE FROM cursors WHERE source = ? AND item = ?"
REPLACED = ""
"""Not a source, since these have names: the last replacement of vectors, by embedder, with the first segment that it
wrote."""

# The end of a document and its nodes: what was born in this generation is taken back, the rest dies.
END_OF_DOCUMENT = (
    f"DELETE FROM nodes WHERE document = :key AND birth = :next AND death = {ALIVE}",
    f"UPDATE nodes SET death = :next WHERE document = :key AND death = {ALIVE}",
    f"DELETE FROM documents WHERE key = :key AND birth = :next AND death = {ALIVE}",
    f"UPDATE documents SET death = :next WHERE key = :key AND death = {ALIVE}",
)
PURGE = tuple(
    f"""DELETE FROM {table} WHERE death < {ALIVE} AND NOT EXISTS
    (SELECT 1 FROM generations g WHERE g.generation >= {table}.birth AND g.generation < {table}.death)"""
    for table in ("nodes", "sources", "documents")
)

# What could not be made: it lasts as long as the document, whatever the generation.
UNMADE = f"""SELECT d.id, ({URI}), u.grp, u.error FROM unmade u JOIN documents d ON d.key = u.document
    WHERE d.birth <= :at AND d.death > :at ORDER BY 2, 1, 3"""
_INSTEAD = "ON CONFLICT (document, grp) DO UPDATE SET error = excluded.error, digest = excluded.digest"
ADD_UNMADE = f"INSERT INTO unmade VALUES (:key, :grp, :error, :digest) {_INSTEAD}"
EXPECT = f"INSERT INTO unmade SELECT key, :grp, :error, :digest FROM documents WHERE death = {ALIVE} {_INSTEAD}"
DROP_UNMADE = "DELETE FROM unmade WHERE document = ? AND grp = ?"
MOVE_UNMADE = "UPDATE unmade SET document = ? WHERE document = ?"

# Pictures of a document: they last as long as it does.
ADD_IMAGE = "INSERT INTO images VALUES (?, ?, ?, ?) ON CONFLICT (document, hash) DO NOTHING"
COPY_IMAGES = "INSERT INTO images SELECT ?, hash, data, digest FROM images WHERE document = ?"
IMAGE = """SELECT i.data, d.audience FROM images i JOIN documents d ON d.key = i.document
    WHERE d.id = :id AND i.hash = :hash AND d.birth <= :at AND d.death > :at"""
LIVE_IMAGES = f"""SELECT d.key, i.hash FROM images i JOIN documents d ON d.key = i.document
    WHERE d.id = ? AND d.death = {ALIVE}"""
LIVE_IMAGE = "SELECT data FROM images WHERE document = ? AND hash = ?"
IMAGES = """SELECT i.hash, i.data FROM images i JOIN documents d ON d.key = i.document
    WHERE d.id = :id AND d.birth <= :at AND d.death > :at ORDER BY i.hash"""

# Nodes.
NODE_COLUMNS = """n.key, n.id, n.text, n.grp, n.start, n.stop, n.first_page, n.last_page, n.first_line, n.last_line,
    n.seconds, n.context, n.parent, n.meta, n.audience, d.id, n.number, n.search_text, n.hash, d.meta,
    CASE WHEN n.first_page < n.last_page THEN d.pages END"""
_NODES = f"SELECT {NODE_COLUMNS}, ({URI}) FROM"
_OF_NODE = "JOIN documents d ON d.key = n.document WHERE"
NODES_OF_KEYS = f"{_NODES} json_each(:keys) wanted CROSS JOIN nodes n ON n.key = wanted.value {_OF_NODE} {_NODE_AT}"
NODES = f"{_NODES} nodes n {_OF_NODE} n.grp = :grp AND {_NODE_AT} ORDER BY n.id"
CHILDREN = f"""{_NODES} json_each(:ids) wanted CROSS JOIN nodes n ON n.parent = wanted.value {_OF_NODE}
    n.grp = :grp AND {_NODE_AT} ORDER BY wanted.key, n.number, n.key"""
_NODES_OF_DOCUMENT = f"""{_NODES} documents d JOIN nodes n ON n.document = d.key
    WHERE d.id = :document AND {_DOCUMENT_AT} AND n.grp = :grp"""
NUMBERED = f"""{_NODES_OF_DOCUMENT} AND n.number BETWEEN :first AND :last
    AND {_NODE_AT} ORDER BY n.number, n.key"""
OVERLAPPING = f"{_NODES_OF_DOCUMENT} AND n.start < :end AND n.stop > :start AND {_NODE_AT} ORDER BY n.number, n.key"
KEYS_OF_IDS = """SELECT n.id, n.key FROM json_each(:ids) wanted CROSS JOIN nodes n ON n.id = wanted.value
    WHERE n.birth <= :at AND n.death > :at"""
NODE_ROW = """id, grp, document, number, hash, text, context, search_text, start, stop, first_page, last_page,
    first_line, last_line, parent, meta, audience, birth, seconds"""
LIVE_NODES_OF = f"SELECT {NODE_ROW}, digest FROM nodes WHERE document = ? AND death = {ALIVE} ORDER BY key"
# While rows are copied, those that were born in this generation make room for their copies: dead before all times.
SET_ASIDE = tuple(
    f"UPDATE {table} SET death = CASE WHEN birth = :next THEN -key ELSE :next END WHERE {column} = :key "
    f"AND death = {ALIVE}"
    for table, column in (("nodes", "document"), ("documents", "key"))
)
DROP_ASIDE = tuple(  # with the very condition of the index, without which it is not used
    f"DELETE FROM {table} WHERE death < 0 AND death < {ALIVE}" for table in ("nodes", "documents")
)
END_GROUP = (
    f"DELETE FROM nodes WHERE grp = :grp AND birth = :next AND death = {ALIVE}",
    f"UPDATE nodes SET death = :next WHERE grp = :grp AND death = {ALIVE}",
    "DELETE FROM unmade WHERE grp = :grp",
)
END_NODES_OF = (
    f"DELETE FROM nodes WHERE document = :key AND grp = :grp AND birth = :next AND death = {ALIVE}",
    f"UPDATE nodes SET death = :next WHERE document = :key AND grp = :grp AND death = {ALIVE}",
)
IDS_OF_KEYS = "SELECT n.key, n.id FROM json_each(:keys) wanted CROSS JOIN nodes n ON n.key = wanted.value"
NODE_KEY = "SELECT key FROM nodes WHERE id = :id AND birth <= :at AND death > :at"
ADD_NODE = f"INSERT INTO nodes ({NODE_ROW}, digest, death) VALUES ({_places(NODE_ROW)}, ?, {ALIVE})"
LAST_KEY = "SELECT coalesce(max(key), 0) FROM nodes"
HAS_NEW_NODES = f"SELECT 1 FROM nodes WHERE grp = ? AND key > ? AND death = {ALIVE} LIMIT 1"
_TO_INDEX = "SELECT n.key, n.context, n.text, n.search_text, d.meta, n.meta FROM"
_WITH_DOCUMENT = "CROSS JOIN documents d ON d.key = n.document"
NEW_NODES = f"""{_TO_INDEX} nodes n {_WITH_DOCUMENT}
    WHERE n.grp = ? AND n.key > ? AND n.death = {ALIVE} ORDER BY n.key"""
LAST_NODES = f"""{_TO_INDEX} nodes n {_WITH_DOCUMENT}
    WHERE n.grp = ? AND n.key <= ? AND n.death = {ALIVE} ORDER BY n.key DESC LIMIT ?"""
NODES_TO_INDEX = f"""{_TO_INDEX} json_each(:keys) wanted CROSS JOIN nodes n ON n.key = wanted.value {_WITH_DOCUMENT}
    ORDER BY n.key"""
TEXTS_OF_KEYS = """SELECT n.key, n.context, n.text, n.search_text FROM json_each(:keys) wanted
    CROSS JOIN nodes n ON n.key = wanted.value ORDER BY n.key"""
DEAD_KEYS = f"SELECT key FROM nodes WHERE grp = ? AND death > ? AND key <= ? AND death < {ALIVE} ORDER BY key"
DEAD_COUNT = f"SELECT count(*) FROM nodes WHERE grp = ? AND death > ? AND key <= ? AND death < {ALIVE}"
LINEAGE = f"SELECT key, id, document, number, parent, meta FROM nodes WHERE grp = :grp AND {_AT} ORDER BY key"
LIVE_KEYS = "SELECT key FROM nodes WHERE grp = :grp AND birth <= :at AND death > :at ORDER BY key"
COUNT_NODES = "SELECT grp, count(*) FROM nodes WHERE birth <= :at AND death > :at GROUP BY grp ORDER BY grp"
COUNT_DOCUMENTS = "SELECT count(*) FROM documents WHERE birth <= :at AND death > :at"
COUNT_SOURCES = f"SELECT status, count(*) FROM sources WHERE {_AT} GROUP BY status ORDER BY status"

# Metadata, for filters: what lives, and what of that was born or has died since an earlier generation.
_LISTED = """SELECT group_concat(key), group_concat(document), group_concat(audience), coalesce(sum(own), 0) FROM"""
"""All rows as three texts, in the order of the subquery: a hundred thousand rows take a quarter of the time so."""
RECORDS = f"""{_LISTED} (SELECT key, document, audience, CASE WHEN meta <> '' THEN 1 ELSE 0 END AS own FROM nodes
    WHERE grp = :grp AND key > :known AND {_AT} ORDER BY key) found"""
DEAD_RECORDS = f"SELECT key FROM nodes WHERE death > :since AND death <= :at AND death < {ALIVE} AND grp = :grp"
LAST_RECORD = "SELECT key FROM nodes WHERE birth <= :at ORDER BY key DESC LIMIT 1"
OWN_METADATA = f"SELECT key, meta FROM nodes WHERE grp = :grp AND key > :known AND meta <> '' AND {_AT}"
WHOLE_RECORDS = f"""{_LISTED} (SELECT key, key AS document, audience, 0 AS own FROM documents
    WHERE key > :known AND {_AT} ORDER BY key) found"""
DEAD_WHOLE_RECORDS = f"SELECT key FROM documents WHERE death > :since AND death <= :at AND death < {ALIVE}"
LAST_WHOLE_RECORD = "SELECT key FROM documents WHERE birth <= :at ORDER BY key DESC LIMIT 1"
WHOLE_KEYS_OF_IDS = """SELECT d.id, d.key FROM json_each(:ids) wanted CROSS JOIN documents d ON d.id = wanted.value
    WHERE d.birth <= :at AND d.death > :at"""
DOCUMENT_METADATA = "SELECT key, meta FROM documents WHERE birth <= :at AND death > :at"
METADATA_OF_DOCUMENTS = """SELECT d.key, d.meta FROM json_each(:keys) wanted
    CROSS JOIN documents d ON d.key = wanted.value WHERE d.birth <= :at AND d.death > :at"""
FILES = """SELECT document, uri, size, created_ns, mtime_ns, accessed_ns FROM sources
    WHERE document IS NOT NULL AND birth <= :at AND death > :at ORDER BY uri"""
FILES_OF_DOCUMENTS = """SELECT s.document, s.uri, s.size, s.created_ns, s.mtime_ns, s.accessed_ns
    FROM json_each(:keys) wanted CROSS JOIN sources s ON s.document = wanted.value
    WHERE s.birth <= :at AND s.death > :at ORDER BY s.uri"""
CHANGED_DOCUMENTS = f"""SELECT document FROM sources WHERE document IS NOT NULL AND birth > :since AND birth <= :at
    UNION SELECT document FROM sources
    WHERE document IS NOT NULL AND death > :since AND death <= :at AND death < {ALIVE}"""
LIVE_METADATA = f"""SELECT 'document ' || coalesce((SELECT min(s.uri) FROM sources s
        WHERE s.document = d.key AND s.death = {ALIVE}), d.id), d.meta
    FROM documents d WHERE d.death = {ALIVE} AND d.meta <> ''
    UNION ALL SELECT 'node ' || id, meta FROM nodes WHERE death = {ALIVE} AND meta <> ''"""

# Vectors.
UNEMBEDDED = f"""SELECT n.key, n.hash, n.id, d.id, n.context, n.text, n.search_text FROM nodes n
    CROSS JOIN documents d ON d.key = n.document
    WHERE n.grp = :grp AND n.key > :key AND n.death = {ALIVE}
    AND NOT EXISTS (SELECT 1 FROM vectors v WHERE v.embedder = :embedder AND v.hash = n.hash)
    ORDER BY n.key LIMIT :limit"""
EMBEDDED_TO = "SELECT grp, embedder, key FROM embedded"
FORGET_EMBEDDED = "DELETE FROM embedded"
SET_EMBEDDED = "INSERT INTO embedded VALUES (?, ?, ?, ?)"
EMBEDDED = f"""SELECT n.hash, n.id, n.context, n.text, n.search_text FROM documents d JOIN nodes n ON n.document = d.key
    WHERE d.id = ? AND d.death = {ALIVE} AND n.grp = ? AND n.death = {ALIVE} ORDER BY n.key"""
COUNT_NODES_OF = f"""SELECT count(*) FROM documents d JOIN nodes n ON n.document = d.key
    WHERE d.id = ? AND d.death = {ALIVE} AND n.death = {ALIVE}"""
LACKING = """SELECT count(*) FROM nodes n WHERE n.grp = :grp AND n.key > :key AND n.birth <= :at AND n.death > :at
    AND NOT EXISTS (SELECT 1 FROM vectors v WHERE v.embedder = :embedder AND v.hash = n.hash)"""
PLACED = """SELECT n.key, v.segment, v.row FROM nodes n
    LEFT JOIN vectors v ON v.embedder = :embedder AND v.hash = n.hash
    WHERE n.grp = :grp AND n.key > :known AND n.birth <= :at AND n.death > :at ORDER BY n.key"""
PLACED_OF_KEYS = """SELECT n.key, v.segment, v.row FROM json_each(:keys) wanted
    CROSS JOIN nodes n ON n.key = wanted.value LEFT JOIN vectors v ON v.embedder = :embedder AND v.hash = n.hash
    WHERE n.grp = :grp AND n.birth <= :at AND n.death > :at ORDER BY n.key"""
PLACED_AFTER = f"""SELECT n.key, v.segment, v.row FROM nodes n
    JOIN vectors v ON v.embedder = :embedder AND v.hash = n.hash
    WHERE n.grp = :grp AND n.key > :key AND n.death = {ALIVE} ORDER BY n.key"""
ALIVE_KEYS = f"SELECT key FROM nodes WHERE grp = :grp AND death = {ALIVE}"
NEEDED_KEYS = "SELECT key FROM nodes WHERE grp = :grp AND death > :at"
DEAD_BEFORE = f"SELECT key FROM nodes WHERE grp = :grp AND death <= :at AND death < {ALIVE}"
SEGMENTS = "SELECT embedder, segment, dimension, count, bytes FROM segments ORDER BY embedder, segment"
SEGMENTS_OF = "SELECT segment, dimension, count, bytes FROM segments WHERE embedder = ? ORDER BY segment"
ADD_SEGMENT = "INSERT INTO segments VALUES (?, ?, ?, ?, ?)"
ADD_VECTOR = "INSERT OR IGNORE INTO vectors VALUES (?, ?, ?, ?)"
REPLACE_VECTOR = ADD_VECTOR.replace("IGNORE", "REPLACE")
HAS_VECTOR = "SELECT 1 FROM vectors WHERE embedder = ? AND hash = ?"
MOVE_VECTOR = "UPDATE vectors SET segment = ?, row = ? WHERE embedder = ? AND hash = ? AND segment = ?"
DROP_VECTORS = "DELETE FROM vectors WHERE embedder = ? AND segment = ?"
DROP_SEGMENT = "DELETE FROM segments WHERE embedder = ? AND segment = ?"
DROP_EMPTY_SEGMENT = f"""{DROP_SEGMENT} AND NOT EXISTS (
    SELECT 1 FROM vectors v WHERE v.embedder = segments.embedder AND v.segment = segments.segment)"""
COUNT_VECTORS = "SELECT embedder, count(*) FROM vectors GROUP BY embedder ORDER BY embedder"
VECTOR_ROWS = "SELECT hash, row FROM vectors INDEXED BY vectors_segment WHERE embedder = ? AND segment = ?"
"""Left alone, SQLite reads all rows of the embedder, which are together: 5 ms of 100,000, for each small segment."""

# Integrity.
INTEGRITY = "PRAGMA integrity_check"
FOREIGN_KEYS = "PRAGMA foreign_key_check"
ORPHANS = f"""SELECT d.id FROM documents d WHERE d.death = {ALIVE}
    AND NOT EXISTS (SELECT 1 FROM sources s WHERE s.document = d.key AND s.death = {ALIVE})"""
UNHOUSED = f"""SELECT n.id FROM nodes n JOIN documents d ON d.key = n.document
    WHERE n.death = {ALIVE} AND d.death != {ALIVE}"""

GUARDED = {
    "manifests": ("grp", "grp, manifest"),
    "generations": ("generation", "generation, indexes, fields"),
    "publications": ("generation", "generation, id"),
    "documents": ("key", DOCUMENT_ROW),
    "sources": ("uri, death", SOURCE_ROW),
    "cursors": ("source, item", "source, item, cursor, birth"),
    "nodes": ("key", NODE_ROW.replace("birth, seconds", "birth || seconds")),  # `rows.node_digest`
    "unmade": ("document, grp", "grp, error"),
    "images": ("document, hash", "hash, data"),
    "embedded": ("grp, embedder", "grp, embedder, key"),
}
"""By table the columns that name a row, and those that its digest is of; indexes repeat the others."""
GUARD = {
    table: f"UPDATE {table} SET digest = ? WHERE {names.replace(', ', ' = ? AND ')} = ?"
    for table, (names, _) in GUARDED.items()
}
ROWS = {table: f"SELECT {names}, {columns}, digest FROM {table}" for table, (names, columns) in GUARDED.items()}
SOME_ROWS = {table: f"{ROWS[table]} WHERE key >= ? ORDER BY key LIMIT ?" for table in ("documents", "nodes")}
ROWS_OF_NODES = f"{ROWS['nodes']} WHERE key IN (SELECT wanted.value FROM json_each(:keys) wanted)"
LAST_KEYS = {table: f"SELECT coalesce(max(key), 0) FROM {table}" for table in SOME_ROWS}
DROP_ROW = {
    table: f"DELETE FROM {table} WHERE {names.replace(', ', ' = ? AND ')} = ?" for table, (names, _) in GUARDED.items()
}
LISTS = "SELECT id, digest, readers FROM audiences"
TABLES = "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite%' ORDER BY name"
COLUMNS = """SELECT made.name, columns.name FROM sqlite_master AS made, pragma_table_xinfo(made.name) AS columns
    WHERE made.name NOT LIKE 'sqlite%'"""
STORE = "SELECT uuid, digest FROM store"
SET_UUID = "UPDATE store SET uuid = ?, digest = ?"

# Mending.
DANGLING = """SELECT DISTINCT document FROM sources
    WHERE document IS NOT NULL AND document NOT IN (SELECT key FROM documents)"""
ORPHAN_KEYS = ORPHANS.replace("SELECT d.id", "SELECT d.key")
SET_LIST = "UPDATE audiences SET readers = ?, digest = ? WHERE id = ?"
LISTS_OF_NODES = f"SELECT DISTINCT audience FROM nodes WHERE document = ? AND death = {ALIVE}"
LIST_OF_DOCUMENT = "SELECT audience, id FROM documents WHERE key = ?"
LIVE_SOURCES_OF_KEY = f"SELECT uri, report FROM sources WHERE document = ? AND death = {ALIVE}"
WIPE_DOCUMENT = (
    "DELETE FROM nodes WHERE document = ?",
    "DELETE FROM sources WHERE document = ?",
    "DELETE FROM documents WHERE key = ?",
)
DOCUMENT_OF_SOURCE = """SELECT s.document, coalesce(d.audience, 0) FROM sources s
    LEFT JOIN documents d ON d.key = s.document WHERE s.uri = ? AND s.death = ?"""
NODE_OF_KEY = "SELECT document, grp, death FROM nodes WHERE key = ?"
DROP_NODES_OF = f"DELETE FROM nodes WHERE document = ? AND grp = ? AND death = {ALIVE}"
LAST_PUBLISHED = """SELECT max(generation) FROM
    (SELECT generation FROM generations UNION SELECT generation FROM publications) known"""
LAST_FIELDS = "SELECT fields FROM generations ORDER BY generation DESC LIMIT 1"
GROUPS = "SELECT grp FROM manifests"
COPIES = "SELECT manifest, copy, digest FROM manifests WHERE grp = ?"

# Making a new database of what can be read in a damaged one.
EMPTY = "DELETE FROM {table}"
COPY = "INSERT OR IGNORE INTO {table} VALUES ({places})"
GUARDED_AND_LISTS = ("audiences", *GUARDED)
WITHOUT_KEYS = ("manifests", "cursors", "unmade", "embedded")
ROWS_AFTER = "SELECT rowid, * FROM {table} WHERE rowid > ? ORDER BY rowid"
EVERY_ROW = "SELECT 0, * FROM {table}"
COUNT_ROWS = "SELECT count(*) FROM {table}"
COUNTS_BY_INDEX = tuple(
    f"SELECT count(*) FROM nodes INDEXED BY {index} WHERE {column} IS NOT NULL"
    for index, column in (
        ("nodes_document", "document"),
        ("nodes_parent", "parent"),
        ("sqlite_autoindex_nodes_1", "id"),
    )
)
ALIVE_ONLY = (  # generations are small numbers, which no byte of the time that never comes makes of it
    "DELETE FROM {table} WHERE death > 0 AND death < 4294967296",
    f"UPDATE OR IGNORE {{table}} SET death = {ALIVE} WHERE death <> {ALIVE}",
    f"DELETE FROM {{table}} WHERE death <> {ALIVE}",
)
LAST_GENERATION = (
    f"INSERT OR IGNORE INTO generations SELECT coalesce(({LAST_PUBLISHED}), 0), '{{}}', '', ''",
    f"INSERT OR IGNORE INTO publications SELECT coalesce(({LAST_PUBLISHED}), 0), '', ''",
)

# Migrations, by the schema that they start from; the rest of a step is in `spolia.stores.backends.sqlite.connection`.
FROM_5 = (
    "CREATE TABLE publications (generation INTEGER PRIMARY KEY, id TEXT NOT NULL)",
    "ALTER TABLE sources ADD COLUMN reader TEXT NOT NULL DEFAULT ''",
)
ADD_PUBLICATION_5 = "INSERT INTO publications VALUES (?, ?)"
SET_MANIFEST = "UPDATE manifests SET manifest = ? WHERE grp = ?"
GUARDED_6 = tuple(table for table in GUARDED if table != "embedded")
FROM_6 = (
    *(f"ALTER TABLE {table} ADD COLUMN digest BLOB NOT NULL DEFAULT ''" for table in ("store", *GUARDED_6)),
    "ALTER TABLE manifests ADD COLUMN copy TEXT NOT NULL DEFAULT ''",
    "UPDATE manifests SET copy = manifest",
    "CREATE INDEX unmade_group ON unmade (grp)",
)
ROWS_6 = ROWS | {"nodes": ROWS["nodes"].replace("birth || seconds", "birth")}
FROM_7 = "ALTER TABLE nodes ADD COLUMN seconds TEXT NOT NULL DEFAULT ''"
FROM_8 = next(statement for statement in SCHEMA if statement.startswith("CREATE TABLE embedded"))
NAME_READER = "UPDATE sources SET reader = ? WHERE substr(report, 1, length(?)) = ?"
