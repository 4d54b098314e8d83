"""Results folders: the only code that writes or reads them. Record first, judge later."""
