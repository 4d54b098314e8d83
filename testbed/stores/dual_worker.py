"""A dual writer in a process of its own, so that it can really be killed.

    REDIS_URL=... python -m testbed.stores.dual_worker --design naive --folder DIR --namespace NS: --batches FILE

recovers and then writes the batches of FILE. It prints one JSON line per event: ``recovered`` (with what was wrong
before any traffic), ``written`` for each acknowledged batch, ``at`` when it stops at a step.

``--die-at STEP`` sends itself SIGKILL there: nothing is flushed, closed or caught, as when somebody else sends it.
``--hold-at STEP`` stops itself there (SIGSTOP), so that somebody else can kill it, or cut its wire and let it go on.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from testbed.core.errors import HarnessError, InvalidInput, unknown
from testbed.core.ports import Index, Row
from testbed.stores.catalogue import build as new_store
from testbed.stores.dual import At, DualWriter, Item, Text, Wrong, undisturbed
from testbed.stores.dual_published import CommitHookWriter, NaiveWriter, OneScriptWriter
from testbed.stores.dual_recoverable import RecoverableWriter
from testbed.stores.text import ANSWER_S, TextStore

Design = Callable[[TextStore, Path, Callable[[], Index], At], DualWriter]
DESIGNS: Mapping[str, Any] = {w.name: w for w in (NaiveWriter, CommitHookWriter, OneScriptWriter, RecoverableWriter)}


def design(name: str) -> Any:
    """The class of writer with this name."""
    if name not in DESIGNS:
        raise unknown("design of a dual writer", name, DESIGNS)
    return DESIGNS[name]


def write_batches(path: Path, batches: Sequence[Sequence[Item]]) -> None:
    """Batches as JSON lines, vectors as base64 of little-endian float32."""
    with path.open("w") as file:
        for batch in batches:
            file.write(json.dumps([_plain(i) for i in batch]) + "\n")


def read_batches(path: Path) -> Iterator[list[Item]]:
    with path.open() as file:
        for line in file:
            yield [_item(told) for told in json.loads(line)]


def _plain(item: Item) -> dict[str, Any]:
    vector = base64.b64encode(item.row.vector.astype("<f4").tobytes()).decode()
    return {**item.text._asdict(), "made_by": item.row.made_by, "vector": vector}


def _item(told: dict[str, Any]) -> Item:
    vector = np.frombuffer(base64.b64decode(told.pop("vector")), dtype="<f4").astype(np.float32)
    made_by = told.pop("made_by")
    text = Text(**{**told, "refs": tuple(told["refs"])})
    return Item(Row(text.doc_id, text.version, text.tenant, vector, made_by, text.digest), text)


def say(**event: Any) -> None:
    """One line, at once: what is still in a buffer when the process is killed was never said."""
    sys.stdout.write(json.dumps(event) + "\n")
    sys.stdout.flush()


def dies_at(step: str) -> At:
    def at(passed: str) -> None:
        if passed == step:
            os.kill(os.getpid(), signal.SIGKILL)

    return at


def holds_at(step: str) -> At:
    def at(passed: str) -> None:
        if passed == step:
            say(event="at", step=step, pid=os.getpid())
            os.kill(os.getpid(), signal.SIGSTOP)

    return at


def plain_wrong(wrong: Sequence[Wrong]) -> list[list[Any]]:
    return [list(w) for w in wrong]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m testbed.stores.dual_worker", description=__doc__)
    parser.add_argument("--design", required=True, help=", ".join(DESIGNS))
    parser.add_argument("--folder", type=Path, required=True, help="of the saved index")
    parser.add_argument("--namespace", required=True, help="prefix of every key in Redis, ends with :")
    parser.add_argument("--batches", type=Path, help="JSON lines; none: recover and end")
    parser.add_argument("--die-at", default="")
    parser.add_argument("--hold-at", default="")
    parser.add_argument("--in-batch", type=int, default=0, help="the batch in which to die or hold, from 0")
    parser.add_argument("--answer-within", type=float, default=ANSWER_S, help="seconds to wait for Redis")
    args = parser.parse_args(argv)
    try:
        return _work(args)
    except HarnessError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code


def _work(args: argparse.Namespace) -> int:
    writer_class = design(args.design)
    disturb = args.die_at or args.hold_at
    if disturb and disturb not in writer_class.steps:
        raise unknown(f"step of {args.design}", disturb, writer_class.steps)
    url = os.environ.get("REDIS_URL", "")
    if not url:
        raise InvalidInput("REDIS_URL is not set")  # not an argument: it can hold a password
    armed = dies_at(args.die_at) if args.die_at else holds_at(args.hold_at) if args.hold_at else undisturbed
    batch_now = [-1]

    def at(step: str) -> None:
        if batch_now[0] == args.in_batch:
            armed(step)

    texts = TextStore.at(url, args.namespace, args.answer_within)
    writer = writer_class(texts, args.folder, lambda: new_store("faiss"), at)
    told = writer.recover()
    say(event="recovered", **told._replace(wrong=())._asdict() | {"wrong": plain_wrong(told.wrong)})
    for number, batch in enumerate(read_batches(args.batches) if args.batches else ()):
        batch_now[0] = number
        writer.write(batch)
        say(event="written", batch=number)
    batch_now[0] = -1
    say(event="done", wrong=plain_wrong(writer.wrong()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
