"""The same pipeline on LlamaIndex: its ingestion, caches, vector store index and retriever, on our layers.

Importing this package imports ``llama_index.core`` (some seconds), so nothing but ``STACK=llama-index`` does.
"""

from testbed.stacks.llama_index.stack import LlamaIndexStack, build

__all__ = ["LlamaIndexStack", "build"]
