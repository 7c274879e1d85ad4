"""The paper's ablations as charts and words, from numbers alone."""
