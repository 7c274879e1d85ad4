"""Text as inputs: words counted, tokens for a transformer, sentence embeddings."""
