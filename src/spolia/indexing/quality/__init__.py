"""What became of the documents of a store: numbers of each and of all, and a page to look at them."""
