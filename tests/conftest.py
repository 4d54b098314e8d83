"""What holds for all tests: no property is a matter of time."""

from __future__ import annotations

from hypothesis import settings

# An example may take long on a machine that is busy; Hypothesis fails it after 200 ms by default.
settings.register_profile("testbed", settings.default, deadline=None)
settings.load_profile("testbed")
