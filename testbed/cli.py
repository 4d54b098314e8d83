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
StackToo = Annotated[str, typer.Option("--stack", envvar="STACK", help="As of `testbed run`.")]
StoreToo = Annotated[str, typer.Option("--store", envvar="STORE", help="As of `testbed run`.")]
ResultsDir = Annotated[str, typer.Option("--results", envvar="RESULTS_DIR", help="Folder of results folders.")]
BaselinesDir = Annotated[str, typer.Option("--baselines", envvar="BASELINES_DIR", help="Folder of the baselines.")]
MustSee = Annotated[
    str, typer.Option("--must-see", envvar="MUST_SEE", help="A drop of this size must be visible; 0.20 by default.")
]


class Ci(StrEnum):
    """Whose workflow file is written."""

    github = "github"
    gitlab = "gitlab"


class Form(StrEnum):
    """How a comparison is printed."""

    text = "text"
    markdown = "markdown"
    csv = "csv"
    latex = "latex"
    json = "json"
    html = "html"


class ListForm(StrEnum):
    """How the scenarios are listed."""

    text = "text"
    markdown = "markdown"
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
    blame: Annotated[
        str, typer.Option(envvar="BLAME", help="bypass, or shapley for several faulty layers (26 arms more).")
    ] = "bypass",
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
        "BLAME": blame,
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
    write_page(folder)
    return print_run(folder, out(), as_json=as_json)


@app.command("list")
def list_(
    runs: Annotated[bool, typer.Option("--runs", help="List results folders instead of scenarios.")] = False,
    form: Annotated[ListForm, typer.Option("--format", help="markdown is scenarios/README.md.")] = ListForm.text,
    results: ResultsDir = "results",
    as_json: Json = False,
) -> int:
    """The scenarios and their variants; with --runs, the results folders, half ones too."""
    from testbed.report import catalogue, index

    as_json = as_json or form == ListForm.json
    if runs:
        return catalogue.print_runs(Path(results), out(), as_json=as_json)
    if form == ListForm.markdown and not as_json:
        sys.stdout.write(index.markdown())
        return 0
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
def shrink(
    run: Annotated[str, typer.Argument(help="A run, as `testbed show` takes it.")],
    violation: Annotated[int, typer.Option(help="Which one, counted from 1; 1 is the one that the run tells.")] = 1,
    results: ResultsDir = "results",
    as_json: Json = False,
) -> int:
    """The fewest operations of a run that still show a violation, found by replaying them; its page tells them too."""
    from testbed.record.runs import find
    from testbed.report.progress import Progress
    from testbed.report.witness import keep, print_shown, shown

    folder = find(Path(results), run)
    with Progress(Console(stderr=True)) as progress:
        found = shown(folder, violation, progress)
    code = print_shown(found, out(), as_json=as_json)
    try:
        keep(folder, found)
    except HarnessError as error:  # somebody else's run may lie where nothing can be written: it was told all the same
        _say(f"not left for the page: {error}", error.exit_code)
    else:
        write_page(folder)
    return code


@app.command()
def repro(
    run: Annotated[str, typer.Argument(help="A run, as `testbed show` takes it.")],
    violation: Annotated[int, typer.Option(help="Which one, counted from 1; 1 is the one that the run tells.")] = 1,
    results: ResultsDir = "results",
) -> int:
    """The same as a stand-alone Python file on standard output: it exits 1 while the violation is there."""
    from testbed.record.runs import find
    from testbed.report.repro import source
    from testbed.report.witness import shown

    found = shown(find(Path(results), run), violation)
    print(source(found), end="")
    return 0


@app.command()
def compare(
    a: Annotated[
        str, typer.Argument(help="Runs: as `testbed show` takes one, several with commas, or a folder of runs.")
    ],
    b: Annotated[str, typer.Argument(help="The runs to compare with them; <runs>@<arm> for one arm.")],
    across: Annotated[
        list[str] | None, typer.Option(help="Allow a difference on purpose: stack, store, seed or level.")
    ] = None,
    form: Annotated[Form, typer.Option("--format", help="How to print it; html is a file.")] = Form.text,
    page: Annotated[str, typer.Option("--out", help="Where the html page goes; into the results folder.")] = "",
    results: ResultsDir = "results",
) -> int:
    """Recorded runs side by side, ask by ask; refuses (exit 4) and says why when they must not be compared."""
    from testbed.report.comparison import print_comparison

    if form is Form.html:
        from testbed.record.runs import find
        from testbed.report.html import write_comparison

        folders = (find(Path(results), a), find(Path(results), b))
        where = Path(page) if page else None
        out().print(write_comparison(*folders, across=across or (), out=where, results=Path(results)), soft_wrap=True)
        return 0
    return print_comparison(Path(results), a, b, across=across or (), form=form.value, console=out())


@app.command()
def baseline(
    scenario: Annotated[str, typer.Argument(help="A scenario's name.")],
    variant: Annotated[str, typer.Option(envvar="VARIANT", help="One of its variants; its first by default.")] = "",
    seed: Annotated[str, typer.Option(envvar="SEED", help="An integer >= 0.")] = "42",
    level: Annotated[str, typer.Option("--level", envvar="POLLUTION_LEVEL", help="As of `testbed run`.")] = "high",
    stack: StackToo = "reference",
    store: StoreToo = "faiss",
    dataset: Annotated[str, typer.Option(envvar="DATASET", help="As of `testbed run`.")] = "",
    queries: Annotated[str, typer.Option(envvar="QUERIES", help="How many questions are asked.")] = "400",
    redis_url: Annotated[str, typer.Option(envvar="REDIS_URL", help="A server to use instead of a private one.")] = "",
    chroma_url: Annotated[str, typer.Option(envvar="CHROMA_URL", help="A Chroma server to use.")] = "",
    accept: Annotated[
        str, typer.Option(envvar="ACCEPT", help="Why to record a run that is worse; kept in the file.")
    ] = "",
    must_see: MustSee = "",
    baselines: BaselinesDir = "results/baselines",
    results: ResultsDir = "results",
    as_json: Json = False,
) -> int:
    """Play a run and make it what `testbed gate` holds later ones to; refuses, without a reason, what is worse."""
    from testbed.diagnose.rerun import record
    from testbed.report.gate import print_recorded
    from testbed.report.progress import Progress
    from testbed.run.knobs import settings, share_of

    typed = {"VARIANT": variant, "SEED": seed, "POLLUTION_LEVEL": level, "STACK": stack, "STORE": store}
    typed |= {"DATASET": dataset, "QUERIES": queries, "REDIS_URL": redis_url, "CHROMA_URL": chroma_url}
    chosen = settings(scenario, typed | {"RESULTS_DIR": results})
    with Progress(Console(stderr=True)) as progress:
        found = record(
            chosen, Path(baselines), accept=accept.strip(), must_see=share_of("MUST_SEE", must_see), progress=progress
        )
    return print_recorded(found, out(), as_json=as_json)


@app.command()
def gate(
    names: Annotated[list[str] | None, typer.Argument(help="Scenarios; all that have a baseline by default.")] = None,
    queries: Annotated[str, typer.Option(envvar="QUERIES", help="The baseline's own by default.")] = "",
    stack: Annotated[str, typer.Option(envvar="STACK", help="The baseline's own by default; see --across.")] = "",
    store: Annotated[str, typer.Option(envvar="STORE", help="The baseline's own by default; see --across.")] = "",
    across: Annotated[list[str] | None, typer.Option(help="Allow a difference on purpose: stack or store.")] = None,
    redis_url: Annotated[str, typer.Option(envvar="REDIS_URL", help="A server to use instead of a private one.")] = "",
    chroma_url: Annotated[str, typer.Option(envvar="CHROMA_URL", help="A Chroma server to use.")] = "",
    exact: Annotated[
        bool, typer.Option("--exact", envvar="EXACT", help="Fail when a deterministic stack's trace changed at all.")
    ] = False,
    must_see: MustSee = "",
    junit: Annotated[str, typer.Option(envvar="JUNIT", help="Write JUnit XML to this file.")] = "",
    summary: Annotated[str, typer.Option(envvar="SUMMARY", help="Append a Markdown summary to this file.")] = "",
    annotations: Annotated[
        bool, typer.Option("--annotations", envvar="ANNOTATIONS", help="Print annotations for GitHub Actions.")
    ] = False,
    bench: Annotated[str, typer.Option(envvar="BENCH", help="Write bench-*.json into this folder.")] = "",
    timings: Annotated[str, typer.Option(envvar="TIMINGS", help="pytest-benchmark JSON of this tree.")] = "",
    bench_baseline: Annotated[
        str, typer.Option(envvar="BENCH_BASELINE", help="pytest-benchmark JSON to compare --timings with.")
    ] = "",
    baselines: BaselinesDir = "results/baselines",
    results: ResultsDir = "results",
    as_json: Json = False,
) -> int:
    """Play what has a baseline again: 0 nothing is worse, 1 something is, 3 a service failed, 4 could not tell."""
    from testbed.diagnose import latency, rerun
    from testbed.report import ci
    from testbed.report.gate import print_decision
    from testbed.report.progress import Progress
    from testbed.run.knobs import queries_of, share_of

    asked = rerun.Ask(
        names=tuple(names or ()),
        baselines=Path(baselines),
        results_dir=Path(results),
        queries=queries_of(queries) if queries.strip() else 0,
        stack=stack.strip(),
        store=store.strip(),
        across=tuple(across or ()),
        redis_url=redis_url,
        chroma_url=chroma_url,
        exact=exact,
        must_see=share_of("MUST_SEE", must_see),
    )
    slower = latency.findings(bench_baseline, timings)
    with Progress(Console(stderr=True)) as progress:
        found = rerun.play(asked, progress, slower)
    ci.write(found, junit=junit, summary=summary, bench=bench)
    code = print_decision(found, out(), as_json=as_json)
    if annotations:
        ci.print_annotations(found)
    return code


@app.command()
def init(
    ci: Annotated[Ci, typer.Option("--ci", help="Which CI the workflow is for.")],
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
) -> int:
    """Write a ready workflow that runs the gate on every change."""
    from testbed.report import workflows

    out().print(f"wrote {workflows.write(Path(), ci.value, force=force)}", soft_wrap=True)
    return 0


@app.command()
def report(
    run: Annotated[str, typer.Argument(help="A run, as `testbed show` takes it.")] = "",
    page: Annotated[str, typer.Option("--out", help="Where the page goes; report.html in the run's folder.")] = "",
    charts: Annotated[str, typer.Option("--charts", help="A folder for each chart as SVG and PNG, for papers.")] = "",
    index: Annotated[bool, typer.Option("--index", help="A page that lists all runs instead.")] = False,
    results: ResultsDir = "results",
) -> int:
    """A recorded run as one page that needs no network, its charts as files, or an index of all runs."""
    from testbed.record.runs import find
    from testbed.report import html

    where = Path(page) if page else None
    if index:
        out().print(html.write_index(Path(results), where), soft_wrap=True)
        return 0
    folder = find(Path(results), run)
    out().print(html.write_report(folder, where), soft_wrap=True)
    if charts:
        from testbed.report.charts import write_charts

        for path in write_charts(folder, Path(charts)):
            out().print(path, soft_wrap=True)
    return 0


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
def sweep(
    scenarios: Annotated[list[str] | None, typer.Argument(help="Scenarios; all by default.")] = None,
    seeds: Annotated[str, typer.Option(help="Such as 1-10 or 1,2,5.")] = "1-5",
    levels: Annotated[str, typer.Option(help="Such as low,medium,0.03.")] = "high",
    variants: Annotated[str, typer.Option(help="first, all, or names with commas.")] = "first",
    queries: Annotated[str, typer.Option(envvar="QUERIES", help="How many questions each run asks.")] = "400",
    arms: Annotated[str, typer.Option(help="The only arms to run, with spaces between; all by default.")] = "",
    stack: StackToo = "reference",
    store: StoreToo = "faiss",
    check: Annotated[bool, typer.Option("--check", help="Exit 1 where a promise is not kept.")] = False,
    results: ResultsDir = "results",
    as_json: Json = False,
) -> int:
    """Many runs in one table: variants and levels over seeds; an interrupted sweep goes on where it was."""
    from testbed.report import sweep as report
    from testbed.run.cells import cells, levels_of, seeds_of, variants_of
    from testbed.run.knobs import queries_of

    chosen = variants_of(scenarios or [], variants, _note)
    asked, only = queries_of(queries or "400"), tuple(arms.split())
    grid = cells(chosen, seeds_of(seeds), levels_of(levels), asked, only, stack or "reference", store or "faiss")
    folder = Path(results or "results") / "sweeps"
    return report.print_sweep(_outcomes(grid, folder), folder, out(), as_json=as_json, check=check)


@app.command()
def matrix(
    scenarios: Annotated[list[str] | None, typer.Argument(help="Scenarios; all by default.")] = None,
    seed: Annotated[str, typer.Option(envvar="SEED", help="An integer >= 0.")] = "42",
    variants: Annotated[str, typer.Option(help="first, all, or names with commas.")] = "",
    queries: Annotated[str, typer.Option(envvar="QUERIES", help="How many questions each run asks.")] = "",
    full: Annotated[
        bool, typer.Option("--full", help="All pairs and variants, slow ones too, 400 questions; else 120.")
    ] = False,
    stack: StackToo = "reference",
    store: StoreToo = "faiss",
    results: ResultsDir = "results",
    as_json: Json = False,
) -> int:
    """Every fix against every fault: what it gives back, what it costs, what it breaks that was whole."""
    from testbed.report import matrix as report
    from testbed.report.progress import Progress
    from testbed.run import scenarios as named
    from testbed.run.cells import played_on, variants_of
    from testbed.run.knobs import queries_of
    from testbed.run.settings import seed_of

    left_out = () if full or scenarios else named.slow()
    chosen = variants_of(scenarios or [], variants or ("all" if full else "first"), _note, left_out)
    folder = Path(results or "results") / "sweeps"
    asked = queries_of(queries or ("400" if full else "120"))
    drawn = seed_of(seed or "42")
    with Progress(Console(stderr=True)) as progress:
        on = {"stack": stack or "reference", "store": store or "faiss"}
        found = report.play(chosen, drawn, asked, folder, progress, every=full, **on)
    where = played_on(on["stack"], on["store"])
    return report.print_matrix(found, drawn, folder, out(), as_json=as_json, left_out=left_out, played_on=where)


@app.command()
def power(
    scenarios: Annotated[list[str] | None, typer.Argument(help="Scenarios; all by default.")] = None,
    seeds: Annotated[str, typer.Option(help="Such as 1-10 or 1,2,5.")] = "1-3",
    variants: Annotated[str, typer.Option(help="first, all, or names with commas.")] = "first",
    queries: Annotated[str, typer.Option(envvar="QUERIES", help="How many questions each run asks.")] = "400",
    clean: Annotated[int, typer.Option(min=1, help="How many clean runs are gated for false alarms.")] = 300,
    whole: Annotated[
        bool,
        typer.Option(
            "--whole", help="All arms of these runs, as a gate plays them; else the clean one, 200 questions."
        ),
    ] = False,
    stack: StackToo = "reference",
    store: StoreToo = "faiss",
    results: ResultsDir = "results",
    as_json: Json = False,
) -> int:
    """How much pollution it takes until the gate notices, and how often it cries where there is none.

    Scenarios that take minutes a run are played when they are named.
    """
    from testbed.report import power as report
    from testbed.report.progress import Progress
    from testbed.run import scenarios as named
    from testbed.run.cells import played_on, seeds_of, variants_of
    from testbed.run.knobs import queries_of

    chosen = variants_of(scenarios or [], variants, _note, () if scenarios else named.slow())
    drawn, asked = seeds_of(seeds), queries_of(queries or "400")
    folder = Path(results or "results") / "sweeps"
    with Progress(Console(stderr=True)) as progress:
        found, alarm, lines = report.play(
            chosen, drawn, asked, clean, folder, progress, stack or "reference", store or "faiss", whole=whole
        )
    where = played_on(stack or "reference", store or "faiss")
    return report.print_power(found, alarm, lines, folder, out(), as_json=as_json, played_on=where)


def _note(line: str) -> None:
    print(f"testbed: {line}", file=sys.stderr)


def _outcomes(grid: list[Any], folder: Path) -> Any:
    from testbed.report.progress import Progress
    from testbed.report.sweep import outcomes

    with Progress(Console(stderr=True)) as progress:
        return outcomes(grid, folder, progress)


@app.command()
def attribution(
    scenarios: Annotated[list[str] | None, typer.Argument(help="Of these scenarios only.")] = None,
    full: Annotated[bool, typer.Option("--full", help="All variants, four seeds, two levels: hours.")] = False,
    seeds: Annotated[str, typer.Option(help="Such as 1-10 or 1,2,5; the tier's by default.")] = "",
    levels: Annotated[str, typer.Option(help="Such as high,0.3; the tier's by default.")] = "",
    queries: Annotated[str, typer.Option(help="How many questions each run asks; the tier's by default.")] = "",
    results: ResultsDir = "results",
) -> int:
    """How often blame by replay, and the published heatmap, name the layer that was really broken."""
    from testbed.diagnose.trials import tier
    from testbed.report.attribution import print_attribution
    from testbed.report.progress import Progress
    from testbed.run.cells import levels_of, seeds_of
    from testbed.run.knobs import queries_of

    wanted = tier(
        "full" if full else "small",
        seeds_of(seeds) if seeds else (),
        levels_of(levels) if levels else (),
        queries_of(queries) if queries else 0,
    )
    with Progress(Console(stderr=True)) as progress:
        return print_attribution(Path(results) / "attribution", wanted, out(), progress, only=scenarios or ())


@app.command("import-traces")
def import_traces(
    files: Annotated[list[Path], typer.Argument(help="OTLP JSON, or one OpenInference span a line.")],
    corpus: Annotated[str, typer.Option(help="What the service searches: a data set's name or folder.")] = "",
    qrels: Annotated[str, typer.Option(help="Relevance judgements instead of the corpus's own.")] = "",
    tenant: Annotated[str, typer.Option(help="The attribute that says who asks, such as user.id.")] = "",
    as_json: Json = False,
) -> int:
    """Spans of a real LlamaIndex or LangChain service: hit rates, suspicious answers, ranking and staleness."""
    from testbed.report.imported import print_imported

    return print_imported(files, corpus, qrels, tenant, out(), as_json=as_json)


@app.command()
def version() -> int:
    """Print the version."""
    from testbed import __version__

    out().print(__version__)
    return 0


def write_page(folder: Path) -> None:
    """The run's page beside it. The run is whole already, so what keeps the page from being made is told, no more."""
    from testbed.report.html import write_report

    try:
        print(f"report: {write_report(folder)}", file=sys.stderr)
    except HarnessError as error:
        _say(f"no report.html: {error}", error.exit_code)


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
