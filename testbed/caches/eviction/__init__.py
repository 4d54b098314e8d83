"""Which entries stay when a cache is full."""

from testbed.caches.eviction.belady import Belady, next_uses
from testbed.caches.eviction.bounded import Bounded
from testbed.caches.eviction.hybrid import SMOOTHINGS, Hybrid, Smoothing
from testbed.caches.eviction.lfu import Lfu
from testbed.caches.eviction.policy import OnEvict, Policy, Simulation, bytes_per_entry, replay, simulate
from testbed.caches.eviction.queues import Fifo, Lru
from testbed.caches.eviction.s3fifo import S3Fifo
from testbed.caches.eviction.sieve import Sieve
from testbed.caches.eviction.tinylfu import FrequencySketch, WTinyLfu
from testbed.caches.eviction.ttl import Ttl

__all__ = [
    "SMOOTHINGS",
    "Belady",
    "Bounded",
    "Fifo",
    "FrequencySketch",
    "Hybrid",
    "Lfu",
    "Lru",
    "OnEvict",
    "Policy",
    "S3Fifo",
    "Sieve",
    "Simulation",
    "Smoothing",
    "Ttl",
    "WTinyLfu",
    "bytes_per_entry",
    "next_uses",
    "replay",
    "simulate",
]
