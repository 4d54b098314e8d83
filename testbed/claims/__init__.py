"""Published claims about RAG caches, each in a file: what it says, how it is measured, what came out."""
