"""Helpers that know no data, method or run."""
