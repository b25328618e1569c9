spolia index docs --store docs.spolia --embedder my_embedder.py:embed
spolia search "Who may read a document?" --store docs.spolia --flow dense --embedder my_embedder.py:embed
