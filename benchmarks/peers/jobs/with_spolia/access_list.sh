spolia index docs --store docs.spolia --no-vectors --readers access_list.txt
spolia search "How is one generation pinned by a run?" --store docs.spolia --access staff
spolia search "How is one generation pinned by a run?" --store docs.spolia
