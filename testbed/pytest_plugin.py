"""For those who live in pytest: ``pytest --rag-gate``, and a fixture that plays a scenario.

``--rag-gate`` adds one test for each cell of each baseline in ``--rag-baselines``. What is not worse passes; what is,
and what could not be told, fails with what the gate found.

``pollution_run`` is a function: ``pollution_run("tenant-leak", queries=120)`` plays a scenario into a temporary folder
and gives its summary; the same arguments are played once a session.

Nothing else of the package is imported until one of the two is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

if TYPE_CHECKING:
    from testbed.record.baseline import Cell


class PollutionRun(NamedTuple):
    """A finished run: its folder, and its summary (see ``testbed.diagnose.summary``)."""

    folder: Path
    summary: Mapping[str, Any]

    @property
    def digest(self) -> str:
        return str(self.summary["digest"])

    @property
    def failures(self) -> list[str]:
        """What is not as the scenario promises, in words."""
        return list(self.summary["expect"]["failures"])

    def mean(self, arm: str, metric: str) -> float:
        """The mean of a metric in an arm."""
        return float(self.summary["arms"][arm]["means"][metric])

    def violated(self, arm: str) -> list[str]:
        """The invariants that an arm breaks."""
        return [v["invariant"] for v in self.summary["arms"][arm]["verdicts"] if v["holds"] is False]


Play = Callable[..., PollutionRun]


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("rag-testbed", "pollution of RAG caches")
    group.addoption("--rag-gate", action="store_true", help="add a test for each baseline: nothing is worse than it")
    group.addoption(
        "--rag-baselines", default="results/baselines", metavar="DIR", help="folder of the baselines (%(default)s)"
    )
    group.addoption(
        "--rag-must-see", type=float, default=0.20, metavar="DROP", help="drop that must be visible (%(default)s)"
    )


def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--rag-gate"):
        items.extend(_items(session, config))


def _items(session: pytest.Session, config: pytest.Config) -> Iterator[pytest.Item]:
    from testbed.core.errors import HarnessError
    from testbed.record import baseline

    folder = Path(config.rootpath, config.getoption("--rag-baselines"))
    if not baseline.names(folder):
        raise pytest.UsageError(f"--rag-gate: no baselines in {folder}; make one: testbed baseline <scenario>")
    for name in baseline.names(folder):
        try:
            found = baseline.read(folder, name)
        except HarnessError as error:
            raise pytest.UsageError(f"--rag-gate: {error}") from error
        for cell in found.cells if found else ():
            words = f"rag-gate[{name}-{cell.variant}-{cell.seed}]"
            yield GateItem.from_parent(session, name=words, scenario=name, cell=cell)


class GateItem(pytest.Item):
    """One cell of a baseline, played again."""

    def __init__(self, *, scenario: str, cell: Cell, **rest: Any) -> None:
        super().__init__(**rest)
        self._scenario = scenario
        self._cell = cell

    def runtest(self) -> None:
        import tempfile

        from testbed.diagnose import regressions, rerun

        with tempfile.TemporaryDirectory(prefix="rag-gate-") as folder:
            asked = rerun.Ask(results_dir=Path(folder), must_see=self.config.getoption("--rag-must-see"))
            decided = regressions.decide([rerun.judged(self._scenario, self._cell, asked)])
        self.user_properties += [("seed", self._cell.seed), ("digest", decided.cells[0].digest)]
        if decided.code:
            raise Worse(decided)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        if not isinstance(excinfo.value, Worse):
            return super().repr_failure(excinfo, style)
        return str(excinfo.value)

    def reportinfo(self) -> tuple[Path, None, str]:
        return self.path, None, self.name


class Worse(Exception):
    """What the gate found."""

    def __init__(self, decided: Any) -> None:
        from testbed.report.gate import SAYS, told
        from testbed.report.junit import as_text

        findings = [as_text(judged, finding) for judged, finding in told(decided)]
        super().__init__("\n\n".join([*findings, f"gate: {SAYS[decided.code]}"]))


@pytest.fixture(scope="session")
def pollution_run(tmp_path_factory: pytest.TempPathFactory) -> Play:
    """Plays a scenario: ``pollution_run(name, **settings)``, settings as of ``testbed.run.settings.Settings``."""
    played: dict[tuple[str, str], PollutionRun] = {}

    def play(scenario: str, **settings: Any) -> PollutionRun:
        from testbed.diagnose.summary import Summarize
        from testbed.record.folder import RunReader
        from testbed.run.execute import run_scenario
        from testbed.run.settings import Settings

        key = scenario, repr(sorted(settings.items()))
        if key not in played:
            results = tmp_path_factory.mktemp("pollution")
            folder = run_scenario(Settings(scenario, **{"results_dir": results} | settings), Summarize())
            played[key] = PollutionRun(folder, RunReader(folder).summary)
        return played[key]

    return play
