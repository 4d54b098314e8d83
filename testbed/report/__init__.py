"""What people see: the story of a run on a terminal, and its tables in other forms. Reads summaries only."""
