"""Workloads: who asks what, when, and what is edited meanwhile."""
