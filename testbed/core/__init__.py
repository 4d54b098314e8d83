"""The nouns. Standard library only; everything else in the package imports downwards to here."""
