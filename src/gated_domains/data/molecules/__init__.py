"""Molecules from SMILES: fingerprints, graphs and scaffolds."""
