"""The encoders a scenario can name."""

from __future__ import annotations

import atexit
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path

from testbed.core.errors import unknown
from testbed.core.names import ValueNames
from testbed.core.ports import Encoder
from testbed.models import embed
from testbed.models.embed import MiniLM
from testbed.models.lsa import LatentSemantic
from testbed.models.memo import Memo, MemoEncoder
from testbed.models.segment import SegmentedLsa

NAMES = ("minilm", "minilm-cased", "minilm-short", "lsa-384", "lsa-jieba", "lsa-jieba-user")
_SHORT_WORDS = 8


def build(
    name: str,
    corpus_texts: Sequence[str],
    memo_dir: Path,
    names: ValueNames,
    *,
    called: str = embed.NAME,
    on_progress: Callable[[int, int], None] | None = None,
) -> Encoder:
    """An encoder by name, with a memo in front.

    All have 384 dimensions and, unless ``called`` says otherwise, the same ``name``: what tells them apart is the
    fingerprint.

    - ``minilm``: all-MiniLM-L6-v2
    - ``minilm-cased``: the same weights, tokenizer without lower-casing
    - ``minilm-short``: the same, but a chunker passes on only the first 8 words of a document
    - ``lsa-384``: latent semantic analysis fitted on ``corpus_texts``
    - ``lsa-jieba``, ``lsa-jieba-user``: the same over Chinese words, cut without and with a user dictionary
    """
    memo = _memo(memo_dir)
    return MemoEncoder(_plain(name, corpus_texts, memo, called), memo, names, on_progress)


def _plain(name: str, corpus_texts: Sequence[str], memo: Memo, called: str) -> Encoder:
    if name == "minilm":
        return MiniLM(memo.file_digest, name=called)
    if name == "minilm-cased":
        return MiniLM(memo.file_digest, casing="cased", name=called)
    if name == "minilm-short":
        return MiniLM(memo.file_digest, max_words=_SHORT_WORDS, name=called)
    if name == "lsa-384":
        return LatentSemantic(corpus_texts, name=called)
    if name in ("lsa-jieba", "lsa-jieba-user"):
        return SegmentedLsa(corpus_texts, user_dict=name == "lsa-jieba-user", name=called)
    raise unknown("encoder", name, NAMES)


@lru_cache(maxsize=8)
def _memo(folder: Path) -> Memo:
    """One open file per folder and process, however many encoders share it."""
    memo = Memo(folder)
    atexit.register(memo.close)
    return memo
