"""Any data set by name or folder.

========================================  =================================================================
files in the folder                       form
========================================  =================================================================
corpus.jsonl, first row has ``_id``       BEIR layout (``corpora.beir``)
corpus.jsonl, first row has ``doc_id``    flat: doc_id, query_id, qrels.tsv (``corpora.flat``)
documents.jsonl, rows have ``tenant``     tenants: word-identical questions, answers by tenant (``corpora.tenants``)
documents.jsonl, rows have ``version``    versions: pages at several dates, answers by date (``corpora.versions``)
========================================  =================================================================
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from testbed.core.errors import BrokenContract, InvalidInput, unknown
from testbed.core.ports import Corpus
from testbed.corpora import beir, rows, sums
from testbed.corpora.answers import AnswerCorpus
from testbed.corpora.facts import FactCorpus
from testbed.corpora.flat import read_flat
from testbed.corpora.handbook_zh import build_handbook_zh
from testbed.corpora.ledger import build_ledger
from testbed.corpora.lifecycle import build_lifecycle
from testbed.corpora.tenants import read_tenants
from testbed.corpora.twins import build_twins
from testbed.corpora.versions import read_versions

DATASETS = Path(__file__).resolve().parents[2] / "datasets"
BUILT: dict[str, Callable[[], FactCorpus | AnswerCorpus]] = {
    "ledger": build_ledger,
    "lifecycle": build_lifecycle,
    "twins": build_twins,
    "handbook-zh": build_handbook_zh,
}


def load(spec: str) -> Corpus:
    """A data set: ``ledger``, ``lifecycle``, ``twins``, ``handbook-zh``, or the path of a folder in a form of the list.

    A generated set is held against the SHA256SUMS of its folder under ``datasets/``, where that is there; a folder
    against its own.

    Raises
    ------
    InvalidInput : no such name or folder, no form is recognised, or a file is wrong (one line with file and line).
    BrokenContract : a generated set is not what its checksums say.
    """
    if spec in BUILT:
        return _built(spec)
    if "\0" in spec or "\n" in spec or not spec.strip():
        raise InvalidInput(f"DATASET={spec!r} is neither a name nor a path")
    if _looks_like_name(spec) and not os.path.exists(spec):
        raise unknown("data set", spec[:80], BUILT, see="or the path of a folder: DATASET=./path")
    return _folder(Path(os.path.expanduser(spec)), spec)


def _built(name: str) -> FactCorpus | AnswerCorpus:
    corpus = BUILT[name]()
    expected = DATASETS / name / sums.FILE
    if expected.is_file() and isinstance(corpus, FactCorpus):
        wrong = sums.differing(sums.read_sums(expected), beir.files_of(corpus))
        if wrong:
            raise BrokenContract(
                f"data set {name!r} was generated differently from {expected}: {'; '.join(wrong)}; "
                "the same seed must give the same bytes on every machine"
            )
    return corpus


def _folder(folder: Path, spec: str) -> Corpus:
    if os.path.isfile(folder):
        raise InvalidInput(f"DATASET={spec!r} is a file; give the folder that holds it")
    if not os.path.isdir(folder):
        raise InvalidInput(f"DATASET={spec[:200]!r} does not exist; give a folder, or one of: {', '.join(BUILT)}")
    if not os.access(folder, os.R_OK | os.X_OK):
        raise InvalidInput(f"DATASET={spec!r} cannot be read: permission denied")
    sums.verify_folder(folder)
    return _reader(folder)(folder, folder.resolve().name)


def _reader(folder: Path) -> Callable[[Path, str], Corpus]:
    if (folder / "corpus.jsonl").exists():
        fields = _fields(folder / "corpus.jsonl")
        if "_id" in fields:
            return beir.read_beir
        if "doc_id" in fields:
            return read_flat
        raise InvalidInput(f"{folder / 'corpus.jsonl'}:1: expected a field '_id' (BEIR) or 'doc_id' (flat form)")
    if (folder / "documents.jsonl").exists():
        fields = _fields(folder / "documents.jsonl")
        if "tenant" in fields:
            return read_tenants
        if "version" in fields:
            return read_versions
        raise InvalidInput(f"{folder / 'documents.jsonl'}:1: expected a field 'tenant' or 'version'")
    raise InvalidInput(f"{folder} holds neither corpus.jsonl (BEIR, flat) nor documents.jsonl (tenants, versions)")


def _fields(path: Path) -> set[str]:
    for _, row in rows.read_jsonl(path):
        return set(row)
    raise InvalidInput(f"{path} holds no rows")


def _looks_like_name(spec: str) -> bool:
    return "/" not in spec and "\\" not in spec and not spec.startswith((".", "~"))
