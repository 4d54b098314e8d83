"""What torch.compile does while a block of code runs, seen from outside: no change to the model.

    with CompileWatch() as watch:
        model(x)
    print(render(watch.report()))

Built on ``torch.compiler.set_stance(force_backend=...)`` (public), which counts the calls of every compiled graph, and
on ``torch._dynamo.utils.get_compilation_metrics()`` and ``counters``, which say what was compiled, why, for how long
and what the disk caches did. The published option ``torch._dynamo.config.cache_hook`` does not exist: assigning it
raises AttributeError.

While watching, ``mode=`` and ``options=`` of a ``torch.compile`` call have no effect (so no CUDA graphs): a forced
backend does not get them. A graph that was compiled before the watch began is compiled again under it.

Two private functions of torch make a watched call nearly as fast as another (``_resolved_once``, ``_uncovered``).
Where they are not as known here, they are left alone: each call takes microseconds more, and the counts are the same.
"""

from __future__ import annotations

import inspect
import logging
import re
import timeit
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch

Cause = Literal["first", "shape", "dtype", "device", "stride", "grad", "object", "other"]

# In this order: a device change is reported as another dispatch key set, whose text also names types.
CAUSES: tuple[tuple[Cause, str], ...] = (
    ("device", r"dispatch key set mismatch|device mismatch|device index"),
    ("dtype", r"dtype mismatch"),
    ("shape", r"size mismatch|rank mismatch|\.size\(|\bEq\(|\bNe\(|[<>]=? "),
    ("stride", r"stride"),
    ("grad", r"requires_grad|grad_mode|GLOBAL_STATE"),
    ("object", r"___check_obj_id|___check_type_id|ID_MATCH|type\("),
)
COUNTED = {
    "fx_hits": ("inductor", "fxgraph_cache_hit"),
    "fx_misses": ("inductor", "fxgraph_cache_miss"),
    "fx_bypassed": ("inductor", "fxgraph_cache_bypass"),
    "autograd_hits": ("aot_autograd", "autograd_cache_hit"),
    "autograd_misses": ("aot_autograd", "autograd_cache_miss"),
    "unique_graphs": ("stats", "unique_graphs"),
}
KEPT_METRICS = 100_000
KEPT_CALLBACKS = 1000


@dataclass(frozen=True, slots=True)
class Graph:
    """One compiled graph. ``calls`` counts the compiling call too, so ``hits`` is one less.

    ``cause`` is why it was compiled beside what was there; ``reasons`` holds torch's own words, one for each older
    graph of the same code that did not fit (only the first failing guard of each).
    """

    name: str
    cause: Cause
    reasons: tuple[str, ...]
    calls: int
    n_ops: int
    n_guards: int
    n_breaks: int
    compile_s: float
    is_dynamic: bool

    @property
    def hits(self) -> int:
        return max(0, self.calls - 1)


@dataclass(frozen=True, slots=True)
class Report:
    """``counts`` are the disk caches' hits and misses (see COUNTED) and the graph breaks, during the watch."""

    graphs: tuple[Graph, ...]
    counts: dict[str, int]

    @property
    def calls(self) -> int:
        return sum(g.calls for g in self.graphs)

    @property
    def hit_rate(self) -> float:
        """Calls that found a compiled graph over all calls; NaN without calls."""
        return sum(g.hits for g in self.graphs) / self.calls if self.calls else float("nan")

    @property
    def recompiles(self) -> dict[str, int]:
        """Number of recompilations by cause."""
        return dict(Counter(g.cause for g in self.graphs if g.cause != "first"))


def cause_of(reason: str) -> Cause:
    """Sort one of torch's recompile reasons."""
    return next((cause for cause, pattern in CAUSES if re.search(pattern, reason)), "other")


class CompileWatch:
    """Watches every ``torch.compile`` inside the with-block; on exit all is as it was. One at a time.

    ``generates_code`` False stops after tracing: the same graphs, guards and reasons, in milliseconds.
    """

    def __init__(self, *, generates_code: bool = True) -> None:
        self._generates_code = generates_code
        self._calls: dict[str, int] = {}
        self._dynamic: set[str] = set()
        self._log = _RecompileLog()
        self._graphs: tuple[Graph, ...] = ()
        self._counts: dict[str, int] = {}

        def backend(module: Any, inputs: Sequence[Any]) -> Callable[..., Any]:
            return self._compiled(module, inputs)

        # at each call torch asks it for an attribute that it lacks, and a function says so sooner than a method
        self.backend = backend

    def __enter__(self) -> CompileWatch:
        from torch._dynamo import utils

        with ExitStack() as undo:
            undo.enter_context(_more_metrics())
            self._first = len(utils.get_compilation_metrics())
            self._before = _counts()
            self._log.attach()
            undo.callback(self._log.detach)
            undo.enter_context(forced(self.backend))
            self._undo = undo.pop_all()
        return self

    def __exit__(self, *error: Any) -> None:
        with self._undo:
            report = self.report()
        self._graphs, self._counts = report.graphs, report.counts

    def report(self) -> Report:
        """What happened so far; after the with-block, what happened in it."""
        if self._counts:
            return Report(self._graphs, self._counts)
        from torch._dynamo import utils

        done = [m for m in utils.get_compilation_metrics()[self._first :] if m.compile_id is not None]
        graphs = tuple(self._graph(m) for m in done if self._calls.get(str(m.compile_id)))
        counts = {name: now - self._before[name] for name, now in _counts().items()}
        return Report(graphs, counts)

    def _graph(self, metric: Any) -> Graph:
        name = str(metric.compile_id)
        reason = metric.recompile_reason or ""
        reasons = self._log.of(name) or ((reason,) if reason else ())
        return Graph(
            name=name,
            cause=cause_of(reason) if reason else "first",
            reasons=reasons,
            calls=self._calls[name],
            n_ops=int(metric.graph_op_count or 0),
            n_guards=int(metric.guard_count or 0),
            n_breaks=int(getattr(metric, "num_graph_breaks", 0) or 0),
            compile_s=(metric.duration_us or 0) / 1e6,
            is_dynamic=name in self._dynamic,
        )

    def _compiled(self, module: Any, inputs: Sequence[Any]) -> Callable[..., Any]:
        """Compile as the default backend does, and count the calls."""
        from torch._guards import CompileContext

        name = str(CompileContext.current_compile_id())
        if any(isinstance(x, torch.SymInt) for x in inputs):
            self._dynamic.add(name)
        compiled: Callable[..., Any] = module
        if self._generates_code:
            from torch._inductor.compile_fx import compile_fx

            compiled = _uncovered(compile_fx(module, list(inputs)))
        return counting(compiled, self._calls, name)


def counting(call: Callable[..., Any], calls: dict[str, int], name: str) -> Callable[..., Any]:
    """``call``, counted under ``name``: what a watched graph pays at each step."""
    calls.setdefault(name, 0)

    def counted(*args: Any) -> Any:
        calls[name] += 1
        return call(*args)

    return counted


@contextmanager
def forced(backend: Callable[..., Any]) -> Iterator[None]:
    """Within, every ``torch.compile`` uses ``backend``; entered again with the same one, it finds its graphs again."""
    # not `fail_on_recompile` or the like: a stance that forces a backend leaves all decisions to torch
    with torch.compiler.set_stance("default", force_backend=backend), _resolved_once(backend):
        yield


@contextmanager
def _resolved_once(backend: Callable[..., Any]) -> Iterator[None]:
    """Keeps what torch makes of a forced backend, for each ``torch.compile``, as it does if the backend is not forced.

    By itself torch makes it anew at each call: four objects and what ``functools.wraps`` copies.
    """
    from torch._dynamo import eval_frame

    resolve = getattr(eval_frame, "_callback_from_stance", None)
    stance = getattr(eval_frame, "_stance", None)
    is_known = inspect.isfunction(resolve) and list(inspect.signature(resolve).parameters) == ["callback"]
    if resolve is None or not is_known or getattr(stance, "backend", None) is not backend:
        yield
        return
    kept: dict[Any, Any] = {}

    def resolved(callback: Any) -> Any:
        if eval_frame._stance is not stance:  # another stance within this one
            return resolve(callback)
        try:
            return kept[callback]
        except KeyError:
            if len(kept) >= KEPT_CALLBACKS:  # a program may call torch.compile itself at every step
                kept.clear()
            return kept.setdefault(callback, resolve(callback))

    eval_frame._callback_from_stance = resolved
    try:
        yield
    finally:
        eval_frame._callback_from_stance = resolve


def _uncovered(compiled: Any) -> Any:
    """``compiled`` without the wrapper that keeps Dynamo out of it: Dynamo puts one around what a backend returns."""
    from torch._dynamo import eval_frame

    innermost = getattr(eval_frame, "innermost_fn", None)
    return compiled if innermost is None else innermost(compiled)


@contextmanager
def _more_metrics() -> Iterator[None]:
    """Within, torch keeps the metrics of more compilations; afterwards as many as before."""
    from torch._dynamo import utils

    limit = getattr(getattr(utils, "_compilation_metrics", None), "maxlen", None)
    utils.set_compilation_metrics_limit(KEPT_METRICS)
    try:
        yield
    finally:
        if limit is not None:
            utils.set_compilation_metrics_limit(limit)


class _RecompileLog(logging.Handler):
    """Listens to torch's recompile messages: one reason for every older graph, where the metric holds only one."""

    logger = "torch._dynamo.guards.__recompiles"

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self._reasons: dict[str, tuple[str, ...]] = {}

    def attach(self) -> None:
        log = logging.getLogger(self.logger)
        self._state = log.level, log.propagate, log.disabled
        log.addHandler(self)
        log.setLevel(logging.DEBUG)
        log.propagate = False

    def detach(self) -> None:
        log = logging.getLogger(self.logger)
        log.removeHandler(self)
        log.level, log.propagate, log.disabled = self._state

    def emit(self, record: logging.LogRecord) -> None:
        from torch._guards import CompileContext

        lines = re.findall(r"^\s*-\s*(\d+/\d+: .*)$", record.getMessage(), re.M)
        if lines:
            self._reasons[str(CompileContext.current_compile_id())] = tuple(lines)

    def of(self, name: str) -> tuple[str, ...]:
        return self._reasons.get(name, ())


def _counts() -> dict[str, int]:
    from torch._dynamo.utils import counters

    found = {name: int(counters[group][key]) for name, (group, key) in COUNTED.items()}
    return {**found, "graph_breaks": sum(counters["graph_break"].values())}


def render(report: Report) -> str:
    """A table for a terminal: one line a graph, then the totals."""
    lines = [f"{'graph':<8}{'cause':<8}{'calls':>6}{'hits':>6}{'ops':>6}{'guards':>8}{'s':>8}  reason"]
    for g in report.graphs:
        reason = g.reasons[0][:80] if g.reasons else ""
        kind = g.cause + ("*" if g.is_dynamic else "")
        lines.append(
            f"{g.name:<8}{kind:<8}{g.calls:>6}{g.hits:>6}{g.n_ops:>6}{g.n_guards:>8}{g.compile_s:>8.2f}  {reason}"
        )
    causes = ", ".join(f"{n} {cause}" for cause, n in sorted(report.recompiles.items())) or "none"
    counts = ", ".join(f"{name} {n}" for name, n in report.counts.items())
    lines.append(f"hit rate {report.hit_rate:.3f} of {report.calls} calls; recompiles: {causes}")
    lines.append(f"{counts} (* compiled for changing shapes)")
    return "\n".join(lines)


def toy(
    sizes: Sequence[int] = (4, 4, 8, 16, 16),
    dtypes: Sequence[str] = ("float32", "float64"),
    devices: Sequence[str] = ("cpu",),
    *,
    generates_code: bool = True,
) -> Report:
    """A two-layer network called with these batch sizes, then once per further type and device: what is compiled.

    By default: one graph for the first size, one for changing sizes from the second on, one for the new type.
    """
    torch._dynamo.reset()
    net = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.GELU(), torch.nn.Linear(64, 32))
    fast = torch.compile(net, backend="inductor" if generates_code else "eager")
    with CompileWatch(generates_code=generates_code) as watch, torch.no_grad():
        for size in sizes:
            fast(torch.zeros(size, 32))
        for name in dtypes[1:]:
            kind = getattr(torch, name)
            net.to(kind)
            fast(torch.zeros(sizes[-1], 32, dtype=kind))
        for device in devices[1:]:
            net.to(device)
            fast(torch.zeros(sizes[-1], 32, dtype=next(net.parameters()).dtype, device=device))
    return watch.report()


def published_hook_exists() -> bool:
    """Whether ``torch._dynamo.config.cache_hook`` can be set, as was published."""
    try:
        torch._dynamo.config.cache_hook = print  # type: ignore[attr-defined]
    except AttributeError:
        return False
    return True


def cost_of_counting(calls: int = 2000, repeat: int = 9) -> float:
    """Seconds that a watched graph pays per call: the best of several rounds, less an uncounted call."""

    def nothing() -> None:
        pass

    counted = counting(nothing, Counter(), "0/0")
    return (
        min(timeit.repeat(counted, number=calls, repeat=repeat)) - min(timeit.repeat(nothing, number=calls))
    ) / calls


class Storm(NamedTuple):
    """One way to call a function with drifting shapes: what was compiled for it, and how many calls found nothing."""

    way: str
    sizes: int
    calls: int
    graphs: int
    recompiles: dict[str, int]
    hits: int
    eager: int


def storm(sizes: Sequence[int] = tuple(range(3, 43)), buckets: Sequence[int] = (8, 16, 32, 64)) -> list[Storm]:
    """The same function called with a length that drifts, each length twice: a recompile storm, and what calms it.

    ``fixed`` compiles for each shape (``dynamic=False``) until torch's limit (``recompile_limit``), and then gives up:
    all later shapes run uncompiled. ``automatic`` is torch's default: from the second shape on, one graph for all.
    ``buckets`` pads to the next of a few lengths. No code is generated, the counts are those of the tracer.
    """

    def padded(x: torch.Tensor) -> torch.Tensor:
        length = next(b for b in buckets if b >= len(x))
        return torch.nn.functional.pad(x, (0, 0, 0, length - len(x)))

    ways: tuple[tuple[str, bool | None, Callable[[torch.Tensor], torch.Tensor]], ...] = (
        ("fixed", False, lambda x: x),
        ("automatic", None, lambda x: x),
        ("buckets", False, padded),
    )
    out = []
    for way, dynamic, prepared in ways:
        torch._dynamo.reset()
        step = torch.compile(_step, dynamic=dynamic, backend="eager")
        with CompileWatch(generates_code=False) as watch, _no_warnings(), torch.no_grad():
            for size in sizes:
                for _ in range(2):
                    step(prepared(torch.zeros(size, 16)))
        report, calls = watch.report(), 2 * len(sizes)
        hits = sum(g.hits for g in report.graphs)
        out.append(Storm(way, len(sizes), calls, len(report.graphs), report.recompiles, hits, calls - report.calls))
    return out


@contextmanager
def _no_warnings() -> Iterator[None]:
    """That the limit is reached is what the table says; torch says it too, on standard error."""
    log = logging.getLogger("torch._dynamo.convert_frame")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(before)


def _step(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.gelu(x @ x.T).sum(0)


def render_storm(storms: Sequence[Storm]) -> str:
    """A table for a terminal: one line a way."""
    lines = [f"{'way':<11}{'sizes':>6}{'calls':>6}{'graphs':>7}{'hits':>6}{'uncompiled':>11}  recompiles"]
    for s in storms:
        causes = ", ".join(f"{n} {cause}" for cause, n in sorted(s.recompiles.items())) or "none"
        lines.append(f"{s.way:<11}{s.sizes:>6}{s.calls:>6}{s.graphs:>7}{s.hits:>6}{s.eager:>11}  {causes}")
    return "\n".join(lines)
