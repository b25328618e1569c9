"""Search along links between nodes: to similar nodes, nodes with the same entities, and neighbours."""
