"""The one idea: operators, and what checks, wires, names and draws them."""
