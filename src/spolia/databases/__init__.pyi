from spolia.databases.database import QueryLimits as QueryLimits
from spolia.databases.database import QueryRows as QueryRows
from spolia.databases.graph_file import GraphFile as GraphFile
from spolia.databases.neo4j_database import Neo4jDatabase as Neo4jDatabase
from spolia.databases.postgres_database import PostgresDatabase as PostgresDatabase
from spolia.databases.sqlite_file import SQLiteFile as SQLiteFile
