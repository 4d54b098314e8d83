"""The command line: arguments in, exit code out, no logic.

Exit codes: 0 passed, 1 an expectation is no longer true, 2 usage, 3 a service or this machine failed, 4 could not
tell or must not be compared, 130 Ctrl-C, 143 SIGTERM.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console

from testbed.core.errors import HarnessError

app = typer.Typer(
    name="testbed",
    help="A pollution sandbox for the caches of retrieval-augmented generation.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
ResultsDir = Annotated[str, typer.Option("--results", envvar="RESULTS_DIR", help="Folder of results folders.")]


class Form(StrEnum):
    """How a comparison is printed."""

    text = "text"
    markdown = "markdown"
    csv = "csv"
    json = "json"


@app.command()
def run(
    scenario: Annotated[str, typer.Argument(help="A scenario's name (see `testbed list`).")],
    variant: Annotated[str, typer.Option(envvar="VARIANT", help="One of its variants; its first by default.")] = "",
    seed: Annotated[str, typer.Option(envvar="SEED", help="An integer >= 0.")] = "42",
    level: Annotated[
        str, typer.Option("--level", envvar="POLLUTION_LEVEL", help="low, medium, high, or a number from 0 to 1.")
    ] = "high",
    stack: Annotated[
        str, typer.Option(envvar="STACK", help="reference, llama-index, or package.module:build of your own.")
    ] = "reference",
    store: Annotated[str, typer.Option(envvar="STORE", help="faiss, chroma or exact.")] = "faiss",
    dataset: Annotated[
        str, typer.Option(envvar="DATASET", help="A data set's name or folder; the scenario's own by default.")
    ] = "",
    queries: Annotated[str, typer.Option(envvar="QUERIES", help="How many questions are asked.")] = "400",
    backend: Annotated[str, typer.Option(envvar="BACKEND", help="embedded, or compose for real containers.")] = "",
    redis_url: Annotated[str, typer.Option(envvar="REDIS_URL", help="A server to use instead of a private one.")] = "",
    chroma_url: Annotated[str, typer.Option(envvar="CHROMA_URL", help="A Chroma server to use.")] = "",
    results: ResultsDir = "results",
    as_json: Json = False,
) -> int:
    """Play a scenario: every arm on the same questions, then say what it cost, which layer did it, what cures it."""
    from testbed.diagnose.summary import Summarize
    from testbed.report.progress import Progress
    from testbed.report.table import print_run
    from testbed.run.execute import run_scenario
    from testbed.run.knobs import settings

    typed = {
        "VARIANT": variant,
        "SEED": seed,
        "POLLUTION_LEVEL": level,
        "STACK": stack,
        "STORE": store,
        "DATASET": dataset,
        "QUERIES": queries,
        "BACKEND": backend,
        "REDIS_URL": redis_url,
        "CHROMA_URL": chroma_url,
        "RESULTS_DIR": results,
    }
    chosen = settings(scenario, typed)
    if chosen.backend == "compose":
        from testbed.run import compose

        return compose.run(chosen, as_json=as_json)
    with Progress(Console(stderr=True)) as progress:
        folder = run_scenario(chosen, Summarize(), progress)
    return print_run(folder, out(), as_json=as_json)


@app.command("list")
def list_(
    runs: Annotated[bool, typer.Option("--runs", help="List results folders instead of scenarios.")] = False,
    results: ResultsDir = "results",
    as_json: Json = False,
) -> int:
    """The scenarios and their variants; with --runs, the results folders, half ones too."""
    from testbed.report import catalogue

    if runs:
        return catalogue.print_runs(Path(results), out(), as_json=as_json)
    return catalogue.print_scenarios(out(), as_json=as_json)


@app.command()
def show(
    run: Annotated[str, typer.Argument(help="A results folder, a scenario (its newest run), or a run's digest.")],
    results: ResultsDir = "results",
    as_json: Json = False,
) -> int:
    """Print a recorded run again, after checking that its files are whole."""
    from testbed.record.runs import find
    from testbed.report.table import print_run

    return print_run(find(Path(results), run), out(), as_json=as_json, verify=True)


@app.command()
def compare(
    a: Annotated[str, typer.Argument(help="A run, as `testbed show` takes it.")],
    b: Annotated[str, typer.Argument(help="The run to compare with it.")],
    across: Annotated[
        list[str] | None, typer.Option(help="Allow a difference on purpose: stack, store, seed or level.")
    ] = None,
    form: Annotated[Form, typer.Option("--format", help="How to print it.")] = Form.text,
    results: ResultsDir = "results",
) -> int:
    """Two recorded runs side by side; refuses (exit 4) and says why when they must not be compared."""
    from testbed.record.runs import find
    from testbed.report.comparison import print_comparison

    folders = (find(Path(results), a), find(Path(results), b))
    return print_comparison(*folders, across=across or (), form=form.value, console=out())


@app.command()
def doctor(as_json: Json = False) -> int:
    """What is installed, what is missing, and which extra brings it."""
    from testbed.report.catalogue import print_checks
    from testbed.run.doctor import examine

    return print_checks(examine(), out(), as_json=as_json)


@app.command()
def claims(
    only: Annotated[list[str] | None, typer.Argument(help="Claims to measure, such as C1; all by default.")] = None,
    full: Annotated[bool, typer.Option("--full", help="The long tier instead of the small one.")] = False,
    results: ResultsDir = "results",
) -> int:
    """Published claims about RAG caches, each measured here: its ruling, its limit, its evidence."""
    from testbed.claims import register

    register.run("full" if full else "small", only=tuple(only or ()), out=Path(results) / "claims", say=out().print)
    return 0


@app.command("compile-report")
def compile_report(
    storm: Annotated[
        bool, typer.Option("--storm", help="Shapes that drift: a recompile storm, and what calms it.")
    ] = False,
    twice: Annotated[
        bool, typer.Option("--twice", help="Two fresh processes, one after the other, on an empty cache folder.")
    ] = False,
    as_json: Json = False,
) -> int:
    """What torch.compile did for a toy model: graphs, hits, recompiles with their reason, disk caches."""
    from testbed.run import compile_report as reporting

    print(reporting.text(storm=storm, twice=twice, as_json=as_json))
    return 0


@app.command()
def version() -> int:
    """Print the version."""
    from testbed import __version__

    out().print(__version__)
    return 0


def out() -> Console:
    """Standard output: as wide as the terminal, 100 columns elsewhere; no colours where NO_COLOR is set."""
    console = Console(highlight=False, emoji=False, markup=False)
    if not console.is_terminal and not os.environ.get("COLUMNS"):
        console.width = 100
    return console


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Run the command line; the only place that turns an outcome into an exit code."""
    signal.signal(signal.SIGTERM, _terminate)
    try:
        code = app(args=None if argv is None else list(argv), prog_name="testbed", standalone_mode=False) or 0
        sys.stdout.flush()
        if code == 130:  # typer has caught Ctrl-C and says nothing
            _say("interrupted", code)
    except HarnessError as error:
        code = _say(str(error), error.exit_code)
    except (KeyboardInterrupt, typer.Abort):  # outside of a command, or an older typer
        code = _say("interrupted", 130)
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 141
    except Exception as error:
        code = _usage(error)
    sys.exit(code)


def _usage(error: Exception) -> int:
    """A typo of the command line is one line; anything else is a bug of ours and shows its traceback."""
    message: Any = getattr(error, "format_message", None)  # click's errors, which typer keeps in a private module
    if message is not None:
        return _say(f"{message()} (testbed --help)", 2)
    traceback.print_exception(error)
    return _say(f"this is a bug in testbed, not in what you typed: {type(error).__name__}", 3)


def _say(message: str, code: int) -> int:
    print(f"testbed: {' '.join(message.split())}", file=sys.stderr)
    return code


def _terminate(number: int, frame: FrameType | None) -> NoReturn:
    signal.signal(number, signal.SIG_IGN)  # a second one must not interrupt the clean-up of the first
    raise SystemExit(128 + number)
