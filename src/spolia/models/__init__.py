"""Language models, embedders and the roles that prompts play; each adapter is a file of its own."""
