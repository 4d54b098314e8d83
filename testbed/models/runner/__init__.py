"""The model runner: one causal language model behind an OpenAI-compatible server, with a choice of KV caches.

``python -m testbed.models.runner --model gemma3-270m --kv-cache-strategy=full``
"""
