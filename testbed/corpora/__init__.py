"""Data sets: the generated ledger, real life-cycle facts, and any folder in a form that the loader knows."""
