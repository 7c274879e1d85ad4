"""The paper's tables, run again: which cells there are, the grid of their runs, and what came of it."""
