"""Ready workflow files that run the gate on every change, for GitHub and for GitLab."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from testbed.core.errors import InvalidInput
from testbed.report.ci import write_file

_GITHUB = """\
# Plays what results/baselines/ remembers again and fails when something is worse (testbed gate).
# RAG_TESTBED is a folder with a checkout of rag-testbed: "." here, or a submodule such as vendor/rag-testbed.
# Exit codes: 0 nothing is worse, 1 something is, 2 usage, 3 a service or the machine failed, 4 could not tell.
name: rag-gate

on:
  push:
    branches: [main]
  pull_request:

permissions:
  contents: read

concurrency:
  group: rag-gate-${{ github.ref }}
  cancel-in-progress: true

env:
  RAG_TESTBED: .

jobs:
  gate:
    runs-on: ubuntu-24.04
    timeout-minutes: 30
    steps:
      - uses: actions/checkout@08c6903cd8c0fde910a37f88322edcfb5dd907a8 # v5.0.0
        with:
          persist-credentials: false
          submodules: true
      - uses: actions/setup-python@a26af69be951a213d495a4c3e4e4022e16d87065 # v5.6.0
        with:
          python-version: "3.12"
      - name: Install
        run: python -m pip install -c "$RAG_TESTBED/constraints.txt" -e "$RAG_TESTBED[models]"
      - name: Gate
        run: python -m testbed gate --junit gate/junit.xml --summary "$GITHUB_STEP_SUMMARY" --annotations --bench gate
      - uses: actions/upload-artifact@ea165f8d65b6e75b540449e92b4886f43607fa02 # v4.6.2
        if: always()
        with:
          name: rag-gate
          path: |
            gate/
            results/
          include-hidden-files: true
          if-no-files-found: ignore
"""

_GITLAB = """\
# Plays what results/baselines/ remembers again and fails when something is worse (testbed gate).
# RAG_TESTBED is a folder with a checkout of rag-testbed: "." here, or a submodule such as vendor/rag-testbed.
# Exit codes: 0 nothing is worse, 1 something is, 2 usage, 3 a service or the machine failed, 4 could not tell.
stages:
  - test

rag-gate:
  stage: test
  image: python:3.12-slim-bookworm
  timeout: 30 minutes
  variables:
    RAG_TESTBED: "."
    GIT_SUBMODULE_STRATEGY: recursive
  script:
    - python -m pip install -c "$RAG_TESTBED/constraints.txt" -e "$RAG_TESTBED[models]"
    - python -m testbed gate --junit gate/junit.xml --summary gate/summary.md --bench gate
  artifacts:
    when: always
    paths:
      - gate/
      - results/
    reports:
      junit: gate/junit.xml
"""


class Workflow(NamedTuple):
    path: Path
    text: str


WORKFLOWS = {
    "github": Workflow(Path(".github") / "workflows" / "rag-gate.yml", _GITHUB),
    "gitlab": Workflow(Path(".gitlab-ci.yml"), _GITLAB),
}


def write(folder: Path, ci: str, *, force: bool = False) -> Path:
    """Write the workflow for ``github`` or ``gitlab`` below ``folder``; a file that is there is left as it is."""
    path = folder / WORKFLOWS[ci].path
    if path.exists() and not force:
        raise InvalidInput(f"{path} is there already; --force replaces it, or move it away and merge the two")
    write_file(path, WORKFLOWS[ci].text.encode())
    return path
