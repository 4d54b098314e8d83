from __future__ import annotations

from testbed.run.compose import words
from testbed.run.settings import Settings


def test_settings_become_the_words_that_give_them_again() -> None:
    settings = Settings("tenant-leak", variant="post-filter", seed=7, level=0.25, store="exact", queries=60)
    assert words(settings, as_json=True) == [
        "run",
        "tenant-leak",
        "--variant",
        "post-filter",
        "--seed",
        "7",
        "--level",
        "0.25",
        "--stack",
        "reference",
        "--store",
        "exact",
        "--queries",
        "60",
        "--json",
    ]


def test_an_empty_knob_is_left_out() -> None:
    assert "--dataset" not in words(Settings("tenant-leak")) and "--variant" not in words(Settings("tenant-leak"))
