"""How good a flow is: data sets, measures, intervals, and the run of a flow over questions with gold."""
