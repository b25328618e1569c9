"""Declared metadata fields in a lexical index, so that a filter is a query of it.

An index has one column for all fields that were declared when it was built from nothing; those of earlier versions have
one for each. It is a text field whose terms are names of fields with values of nodes and their documents, as JSON. A
value's kind, its length and the field's default count only when a filter is asked, since a store may declare its fields
differently later.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

import tantivy

from spolia.filters import And, AnyOf, Condition, Field, Leaf, Not, Or, Schema
from spolia.stores.backends.rows import meta_pairs
from spolia.stores.files import TermColumn
from spolia.types import Scalar, Time

KEY, BODY, LENGTH = "key", "body", "length"
"""Fields of an index beside those of metadata: a node's key, the terms of its text, and how many these are."""

_LONGEST = 1_000
"""Characters of a term; tantivy drops terms of more than 65,530 bytes without a word."""
_OVERLONG = "overlong"
"""The term of all longer values, which is no JSON. What a filter says of them is not known from the index."""
_WALKED_TERMS, _QUERIED_TERMS = 64, 1_000
"""Terms up to which the index walks their own lists, which is the fastest; up to which a question is asked with them,
else its hits are filtered. One of 1,000 terms costs a question 1 CPU-ms."""
_KEPT = 64
"""Filters whose queries are kept."""


def terms_of(metadata: Iterable[str], columns: Mapping[str, TermColumn]) -> Iterator[tuple[str, str]]:
    """Yield the column and the term of each value in packed metadata.

    >>> list(terms_of(['[["lang","é"],["by","Ann"]]', ""], {"lang": TermColumn("c1", '"lang"')}))
    [('c1', '"lang""\\\\u00e9"')]
    """
    for name, value in chain.from_iterable(map(meta_pairs, metadata)):
        if name in columns and value is not None:
            yield columns[name].name, columns[name].prefix + _term(value)


def _term(value: Scalar) -> str:
    term = json.dumps(value)
    return term if len(term) <= _LONGEST else _OVERLONG


class FieldTerms:
    """Filters on declared fields as queries of an index."""

    def __init__(self, searcher: Any, schema: Any, columns: Mapping[str, TermColumn]) -> None:
        self._searcher, self._schema, self._columns = searcher, schema, columns
        self._values: dict[Field, Mapping[str, Scalar] | None] = {}
        self._queries: dict[object, Any] = {}

    def query(self, filter: Condition, schema: Schema) -> Any | None:
        """Return a query of the accepted nodes; None where the index does not know them, or would be slow."""
        key = (filter.digest, schema)  # 1 and True are equal, and not one condition
        if key not in self._queries:
            if len(self._queries) >= _KEPT:
                # Users bring new filters all the time, so the cache is bounded.
                self._queries = {}
            self._queries[key] = self._combine(filter, schema)
        return self._queries[key]

    def keys(self, leaf: Leaf, field: Field, key: str) -> list[int] | None:
        """Return the keys of the nodes that fulfil a condition, in any order; None where the index does not know."""
        query = self._leaf_query(leaf, field, None)
        if query is None:
            return None
        count = self._searcher.search(query, 1).count or 0
        hits = self._searcher.search(tantivy.Query.const_score_query(query, 1.0), max(1, count), count=False).hits
        node_keys: list[int] = self._searcher.fast_field_values(key, [address for _, address in hits])
        return node_keys

    def _combine(self, filter: Condition, schema: Schema) -> Any | None:
        if isinstance(filter, Leaf):
            return self._leaf_query(filter, schema.by_name[filter.field], _QUERIED_TERMS)
        if isinstance(filter, Not):
            inner = self._combine(filter.filter, schema)
            return None if inner is None else _negate(inner)
        if not isinstance(filter, And | Or):
            return None
        parts = [self._combine(part, schema) for part in filter.filters]
        if any(part is None for part in parts):
            return None
        if not parts:
            return tantivy.Query.all_query() if isinstance(filter, And) else tantivy.Query.empty_query()
        return _boolean(tantivy.Occur.Must if isinstance(filter, And) else tantivy.Occur.Should, *parts)

    def _leaf_query(self, leaf: Leaf, field: Field, limit: int | None) -> Any | None:
        column = self._columns.get(field.name)
        if column is None:
            return None
        takes_default = any(map(leaf.holds, field.meant((field.default,))))
        if isinstance(leaf, AnyOf) and field.kind == "str" and not takes_default:
            terms = list(dict.fromkeys(map(_term, leaf.values)))  # a text has one term: no need to look at all
            return None if _OVERLONG in terms else self._any_of(column, terms, limit)
        values = self._values_of(column, field)
        if values is None:
            return None
        holds = _holds(leaf, field)
        query = self._any_of(column, [term for term, value in values.items() if holds(value)], limit)
        if not takes_default or query is None:
            return query
        fitting = self._any_of(column, list(values), limit)
        return None if fitting is None else _any_query(query, _negate(fitting))

    def _values_of(self, column: TermColumn, field: Field) -> Mapping[str, Scalar] | None:
        """Return the values that fit a field, by their terms; None where there is one that is not known."""
        if field not in self._values:
            start = len(column.prefix)
            terms = [term[start:] for term, _ in self._searcher.terms_with_prefix(*column)]
            values = None
            if _OVERLONG not in terms:
                loaded = json.loads(f"[{','.join(terms)}]")  # to load each alone takes ten times as long
                values = {term: value for term, value in zip(terms, loaded, strict=True) if field.fits(value)}
                if field.kind == "time":
                    values = {term: Time(str(value)) for term, value in values.items()}
            self._values[field] = values
        return self._values[field]

    def _any_of(self, column: TermColumn, terms: list[str], limit: int | None) -> Any | None:
        """Return a query for the nodes with one of these terms; None for more than `limit`."""
        if limit is not None and len(terms) > limit:
            return None
        if not terms:
            return tantivy.Query.empty_query()
        name, terms = column.name, [column.prefix + term for term in terms]
        if len(terms) > _WALKED_TERMS:
            return tantivy.Query.term_set_query(self._schema, name, terms)
        return _any_query(*(tantivy.Query.term_query(self._schema, name, term, "basic") for term in terms))


def _holds(leaf: Leaf, field: Field) -> Callable[[Scalar], bool]:
    return set(leaf.values).__contains__ if isinstance(leaf, AnyOf) and field.kind != "time" else leaf.holds


def _any_query(*queries: Any) -> Any:
    return queries[0] if len(queries) == 1 else _boolean(tantivy.Occur.Should, *queries)


def _negate(query: Any) -> Any:
    occur = tantivy.Occur
    return tantivy.Query.boolean_query([(occur.Must, tantivy.Query.all_query()), (occur.MustNot, query)])


def _boolean(occur: Any, *queries: Any) -> Any:
    return tantivy.Query.boolean_query([(occur, query) for query in queries])
