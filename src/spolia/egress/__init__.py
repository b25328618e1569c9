"""The one way out: all requests over HTTP that this package makes, bounded in time and size, to allowed addresses.

Servers that somebody named in a model's settings are asked by `exchange.exchanged`; whatever a document, a feed or a
redirect names is fetched by `fetching.fetch`, which goes to public addresses only unless told otherwise.
"""
