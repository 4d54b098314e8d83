"""Which revision of each document was current at which op."""

from __future__ import annotations

from bisect import bisect_right

from testbed.core.evidence import DocRow, Evidence


class Timeline:
    """The documents over the ops of a run: a lookup at op ``i`` sees the changes made by ops up to and with ``i``."""

    def __init__(self, evidence: Evidence) -> None:
        changes: dict[str, list[tuple[int, DocRow | None]]] = {}
        for row in evidence.docs.values():
            changes.setdefault(row.doc_id, []).append((row.introduced, row))
        for op in evidence.ops:
            if op.do == "delete":
                changes.setdefault(op.id, []).append((op.index, None))
            again = evidence.docs.get((op.id, op.version)) if op.do == "upsert" else None
            if again is not None and again.introduced != op.index:
                # The document comes back in a revision that it had before.
                changes.setdefault(op.id, []).append((op.index, again))
        self._ops: dict[str, list[int]] = {}
        self._rows: dict[str, list[DocRow | None]] = {}
        for doc_id, found in changes.items():
            found.sort(key=lambda c: c[0])
            self._ops[doc_id] = [at for at, _ in found]
            self._rows[doc_id] = [row for _, row in found]
        self._texts: dict[str, set[str]] = {}
        self._revisions: dict[str, list[DocRow]] = {}
        for row in evidence.docs.values():
            self._texts.setdefault(row.doc_id, set()).add(row.text)
            self._revisions.setdefault(row.text, []).append(row)
        self._tenants = {row.doc_id: row.tenant for row in evidence.docs.values()}

    def current(self, doc_id: str, op: int) -> DocRow | None:
        """The revision in force at an op; None when the document is not there (yet, or any more)."""
        at = bisect_right(self._ops.get(doc_id, []), op)
        return self._rows[doc_id][at - 1] if at else None

    def since(self, doc_id: str, op: int) -> int:
        """The op that brought the state in force at ``op`` (a revision or a deletion); -1 before the first."""
        at = bisect_right(self._ops.get(doc_id, []), op)
        return self._ops[doc_id][at - 1] if at else -1

    def tenant(self, doc_id: str) -> str | None:
        """Whose document it is: "" shared by all, None unknown."""
        return self._tenants.get(doc_id)

    def has_text(self, doc_id: str, text: str) -> bool:
        """Whether a text digest is that of some revision of the document."""
        return text in self._texts.get(doc_id, ())

    def revisions(self, text: str) -> tuple[DocRow, ...]:
        """Every revision of any document that has this text, given by its digest."""
        return tuple(self._revisions.get(text, ()))
