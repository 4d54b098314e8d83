"""no-cross-tenant: nobody is served, shown or ranked what belongs to another tenant."""

from __future__ import annotations

from dataclasses import dataclass

from testbed.core.evidence import Evidence
from testbed.core.history import Ask, History
from testbed.core.types import Verdict, Witness
from testbed.invariants import words
from testbed.invariants.words import pair


@dataclass(frozen=True, slots=True)
class NoCrossTenant:
    """Documents of another tenant in the ranking or the sources, or another tenant's canary in what was shown.

    Documents without a tenant are shared. Could not tell: asks without tenant, documents nobody recorded.
    """

    name: str = "no-cross-tenant"

    def check(self, evidence: Evidence) -> Verdict:
        return self.judge(History(evidence))

    def judge(self, history: History) -> Verdict:
        checked = [ask for ask in history.asks.values() if ask.foreign is not None]
        leaks = [ask for ask in checked if ask.foreign]
        if leaks:
            return Verdict(self.name, False, len(leaks), len(checked), pair(_witness(history, ask) for ask in leaks))
        unknown = len(history.asks) - len(checked)
        if unknown or not checked:
            why = f"{unknown} of {len(history.asks)} asks name no tenant, or were served documents that nobody recorded"
            return Verdict(self.name, None, 0, len(checked), why=why)
        return Verdict(self.name, True, 0, len(checked))

    def witnesses(self, history: History) -> list[Witness]:
        return [_witness(history, ask) for ask in history.asks.values() if ask.foreign]


def _witness(history: History, ask: Ask) -> Witness:
    """The entry of another tenant that this asker was served from, else the document that the index gave away."""
    for lookup in ask.lookups:
        write = lookup.write
        if not lookup.hit or write is None or "." in lookup.event.layer:
            continue
        if history.asker(write) not in ("", ask.op.tenant):
            story = words.served_from(history, lookup, write)
            return Witness((write.op, ask.op.index), lookup.event.layer, story)
    for search in ask.searches:
        for doc_id, row in search.rows:
            owner = history.timeline.tenant(doc_id)
            if owner not in (None, "", ask.op.tenant) and row is not None:
                said = f"and the index gave {owner}'s document {doc_id}, put there at op {row.op}"
                limit = search.event.key.get("tenant", "")
                scope = f"search of tenant {limit}" if limit else "search over all tenants"
                story = f"{words.asked(history, ask.op.index)} {said} ({scope})"
                return Witness((row.op, ask.op.index), "index", story)
    whose = " and ".join(ask.foreign_tenants)
    story = f"{words.asked(history, ask.op.index)} and got content of {whose} (served by: {ask.via})"
    return Witness((ask.op.index,), ask.via, story)
