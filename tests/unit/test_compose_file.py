"""What compose.yaml and the README say about the sandbox, read without Docker."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_it_is_valid_compose() -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", "compose.yaml"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


def test_images_are_pinned_in_one_place() -> None:
    """A base image is named in compose.yaml under x-images, and in no Dockerfile."""
    for file in (ROOT / "docker").glob("*/Dockerfile"):
        sources = re.findall(r"^FROM (\S+)(?: AS (\S+))?", file.read_text(), re.MULTILINE)
        stages = {stage for _, stage in sources}
        assert sources and all(image.startswith("${") or image in stages for image, _ in sources), file
    named = re.search(r"^x-images:\n((?:  .*\n)+)", (ROOT / "compose.yaml").read_text(), re.MULTILINE)
    assert named is not None
    images = re.findall(r":-(\S+)\}", named[1])
    assert len(images) == 4 and all(re.search(r":v?\d+\.\d+", image) for image in images)


def test_the_readme_shows_ten_lines() -> None:
    found = re.search(r"^## In Docker\n.*?^```sh\n(.*?)^```$", (ROOT / "README.md").read_text(), re.M | re.S)
    assert found is not None and len(found[1].splitlines()) == 10
