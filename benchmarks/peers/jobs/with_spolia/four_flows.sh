spolia index docs --store docs.spolia --embedder "$OPENAI_BASE_URL" --embed-model hashed
spolia eval bm25 dense hybrid four_flows.yaml --data questions.csv --store docs.spolia --embedder "$OPENAI_BASE_URL" --embed-model hashed --measures R@5,MRR
