"""Vector indexes: one contract, an exact reference, and real stores."""
