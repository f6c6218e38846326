"""Values of a run: graph, state, inputs, decisions and rows."""
