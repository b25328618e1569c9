"""Questions with gold made of the documents of a store, by a language model and filters."""
