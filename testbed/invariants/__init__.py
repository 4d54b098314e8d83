"""Rules that no correct stack breaks, judged over the evidence of one arm, each with the smallest witness."""
