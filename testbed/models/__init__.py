"""What turns text into vectors, passages into answers, and prompts into text."""
