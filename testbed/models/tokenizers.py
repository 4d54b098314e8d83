"""How the sentence encoder cuts a text into pieces: its own tokenizer, and one that was deployed wrongly."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from tokenizers import Tokenizer

Casing = Literal["uncased", "cased"]
MAX_TOKENS = 256  # the model's own limit: longer texts are cut


def load(file: Path, casing: Casing) -> Tokenizer:
    """The tokenizer of a model folder.

    ``cased`` is the same vocabulary with lower-casing switched off: a one-flag mistake that no shape check sees. The
    vocabulary has no capital letters, so every capitalised word becomes the unknown token.
    """
    from tokenizers import Tokenizer
    from tokenizers.normalizers import BertNormalizer

    tokenizer = Tokenizer.from_file(str(file))
    tokenizer.no_padding()
    tokenizer.enable_truncation(MAX_TOKENS)
    if casing == "cased":
        tokenizer.normalizer = BertNormalizer(
            clean_text=True, handle_chinese_chars=True, strip_accents=None, lowercase=False
        )
    return tokenizer


def first_words(text: str, n_words: int) -> str:
    """The first ``n_words`` words: what a chunker with a wrong limit passes on."""
    return " ".join(text.split()[:n_words])
