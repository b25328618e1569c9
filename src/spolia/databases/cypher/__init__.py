"""A reading subset of Cypher over a graph in memory.

Clauses: MATCH and OPTIONAL MATCH with WHERE, UNWIND, WITH and RETURN with DISTINCT, ORDER BY, SKIP and LIMIT. Patterns:
nodes with labels and properties, relationships with types, directions, properties and lengths (`*1..3`). Expressions:
comparisons, AND, OR, XOR, NOT, IN, STARTS WITH, ENDS WITH, CONTAINS, IS NULL, arithmetic, lists, patterns as
conditions, the functions and aggregates in `functions`. NULL is unknown, as in Cypher. No clause writes, calls or
loads, so no statement can. Regular expressions, which could take for ever, are not supported.
"""
