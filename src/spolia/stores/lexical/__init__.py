"""Search by words: how texts become terms, frozen indexes of them, and how they follow a backend elsewhere."""
