"""Word segmentation for languages that are written without spaces, in two versions of one segmenter."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

from testbed.core import digest
from testbed.core.errors import Unavailable
from testbed.core.ports import Role, Vectors
from testbed.models.lsa import LatentSemantic

_QUOTED = re.compile(r"「([^「」]{2,16})」")
_MISSING = "the encoder {} needs jieba; install the extra 'chinese' (pip install 'rag-testbed[chinese]')"


class SegmentedLsa:
    """Latent semantic analysis over the words that a segmenter finds.

    Fitted on both versions' words, so that each version is good by itself: what differs between the two is not the
    model but how a text is cut before it gets there.

    Parameters
    ----------
    user_dict : a term that the texts quote 「so」 is one word, as for a segmenter with a user dictionary
    name : what people call the model
    """

    dim = LatentSemantic.dim

    def __init__(self, corpus_texts: Sequence[str], *, user_dict: bool, name: str) -> None:
        version = _version(name)
        self._terms = terms_in(corpus_texts)
        self._cut = _segmenter(self._terms if user_dict else ())
        both = [_segmenter(terms) for terms in ((), self._terms)]
        self._inner = LatentSemantic([spaced(t, cut) for t in corpus_texts for cut in both], name=name)
        self.name = name
        self.tokenizer = f"jieba {version}{' with a user dictionary' if user_dict else ''}"
        settings = {"jieba": version, "terms": list(self._terms), "user_dict": user_dict}
        self.fingerprint = digest.of_json({"inner": self._inner.fingerprint, **settings})

    def encode(self, texts: Sequence[str], role: Role) -> Vectors:
        return self._inner.encode([spaced(text, self._cut) for text in texts], role)


def terms_in(texts: Iterable[str]) -> tuple[str, ...]:
    """The terms that texts quote, sorted."""
    return tuple(sorted({term for text in texts for term in _QUOTED.findall(text)}))


def spaced(text: str, cut: Any) -> str:
    """The words of a text with spaces between them."""
    return " ".join(cut(text))


@lru_cache(maxsize=8)
def _segmenter(terms: tuple[str, ...]) -> Any:
    """``text -> words``, with these terms added to the dictionary."""
    tokenizer = _jieba("lsa-jieba").Tokenizer()
    for term in terms:
        tokenizer.add_word(term)
    return tokenizer.lcut


def _version(name: str) -> str:
    return str(_jieba(name).__version__)


@lru_cache(maxsize=1)
def _jieba(name: str) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it was written before Python minded its escapes
            import jieba  # type: ignore[import-untyped]
    except ImportError as error:
        raise Unavailable(_MISSING.format(name)) from error
    jieba.setLogLevel(60)
    return jieba
