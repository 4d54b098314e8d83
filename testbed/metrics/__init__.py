"""Numbers on what the users of a stack got: read from the evidence of one arm, never from a live object."""
