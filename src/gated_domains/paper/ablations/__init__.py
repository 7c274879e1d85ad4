"""The paper's ablations on Digits-5, run again: the grid behind each figure, and what trained networks show."""
