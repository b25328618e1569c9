"""Node groups being built: nodes of pieces, growth from group to group."""
