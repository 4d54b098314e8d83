"""A truly different encoder of the same dimension: latent semantic analysis of the corpus at hand."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from testbed.core import digest
from testbed.core.errors import Unavailable
from testbed.core.ports import Role, Vectors

_VERSION = 1  # raise when the same corpus would give other vectors
_FLOOR = ("first filler", "second filler")  # what a decomposition needs at least: two texts, two words
_PATTERN = r"(?u)\b\w+\b"


class LatentSemantic:
    """TF-IDF over words, reduced by a truncated SVD that is fitted on the corpus; rows of norm 1.

    A corpus too small for ``dim`` directions leaves the rest at zero. A text without any known word gets the constant
    vector: it has a norm, and nothing in common with any document in particular.

    Parameters
    ----------
    corpus_texts : what to fit on; order and repetition do not matter
    name : what people call the model
    """

    dim = 384

    def __init__(self, corpus_texts: Sequence[str], *, name: str) -> None:
        self._texts = sorted(set(corpus_texts))
        self._fitted: Any = None
        self.name = name
        self.tokenizer = f"words@{_VERSION}"
        self.fingerprint = digest.of_json(
            {"lsa": _VERSION, "dim": self.dim, "pattern": _PATTERN, "corpus": digest.of_json(self._texts)}
        )

    def encode(self, texts: Sequence[str], role: Role) -> Vectors:
        if self._fitted is None:
            self._fitted = _Fitted(self._texts, self.dim)
        out = np.empty((len(texts), self.dim), dtype=np.float32)
        for row, text in enumerate(texts):  # one at a time: a row must not depend on its batch
            out[row] = self._fitted.one(text)
        return out


class _Fitted:
    def __init__(self, texts: Sequence[str], dim: int) -> None:
        try:
            from sklearn.decomposition import TruncatedSVD  # type: ignore[import-untyped]
            from sklearn.feature_extraction.text import TfidfVectorizer  # type: ignore[import-untyped]
        except ImportError as error:
            raise Unavailable(
                "the encoder lsa-384 needs scikit-learn; install the extra 'models' (pip install 'rag-testbed[models]')"
            ) from error
        self._dim = dim
        self._words = TfidfVectorizer(token_pattern=_PATTERN, sublinear_tf=True, norm="l2")
        n_words = len({word for text in texts for word in re.findall(_PATTERN, text.lower())})
        counts = self._words.fit_transform(texts if n_words > 1 and len(texts) > 1 else [*texts, *_FLOOR])
        n_directions = max(1, min(dim, counts.shape[0] - 1, counts.shape[1] - 1))
        svd = TruncatedSVD(n_directions, algorithm="randomized", n_iter=7, random_state=0)
        svd.fit(counts)
        self._directions = _signed(svd.components_)

    def one(self, text: str) -> Vectors:
        reduced = self._directions @ np.asarray(self._words.transform([text]).todense()).ravel()
        norm = float(np.linalg.norm(reduced))
        out = np.zeros(self._dim, dtype=np.float32)
        if norm < 1e-9:
            return np.full(self._dim, self._dim**-0.5, dtype=np.float32)
        out[: reduced.size] = reduced / norm
        return out


def _signed(directions: Any) -> Any:
    """Each direction turned so that its largest entry is positive: an SVD leaves the sign open."""
    peaks = directions[np.arange(len(directions)), np.abs(directions).argmax(axis=1)]
    return directions * np.where(peaks < 0, -1.0, 1.0)[:, None]
