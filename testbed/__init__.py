"""A pollution sandbox for the caches of retrieval-augmented generation."""

__version__ = "0.1.0"
