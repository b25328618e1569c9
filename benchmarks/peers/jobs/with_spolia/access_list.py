from spolia import BM25, Corpus, Query, Run, sync

corpus = Corpus("docs.spolia")
sync("docs", corpus, access=lambda uri: ["staff"] if uri.startswith("contributing/") else [])
for groups in (("staff",), ()):
    with Run(principal="ann", groups=groups) as run:
        print(groups, {hit.node.uri for hit in BM25(corpus.group())(Query("How is one generation pinned by a run?"))})
