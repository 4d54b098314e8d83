"""A gate's outcome as JUnit XML: a test case for each arm of each cell, so scenario x layer or fix x seed."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

from testbed.diagnose.findings import Decision, Finding, Judged
from testbed.report.gate import lines

# What XML 1.0 cannot hold at all, not even escaped.
_FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def to_xml(found: Decision) -> bytes:
    """One suite a scenario and variant; failures are regressions, errors could not be told or played."""
    root = ET.Element("testsuites", name="rag-testbed gate")
    suites: dict[str, ET.Element] = {}
    for judged in found.cells:
        name = f"{judged.scenario}.{judged.cell.variant}"
        suite = suites.get(name)
        if suite is None:
            suite = suites[name] = ET.SubElement(root, "testsuite", name=name)
        for arm, findings in by_arm(judged).items():
            _case(suite, judged, arm, findings)
    if found.others:
        suite = suites["gate"] = ET.SubElement(root, "testsuite", name="gate")
        for finding in found.others:
            case = ET.SubElement(suite, "testcase", classname="gate", name=clean(finding.arm or finding.rule))
            _outcome(case, None, [finding])
    for element in (*suites.values(), root):
        cases = list(element.iter("testcase"))
        element.set("tests", str(len(cases)))
        element.set("failures", str(sum(case.find("failure") is not None for case in cases)))
        element.set("errors", str(sum(case.find("error") is not None for case in cases)))
        element.set("skipped", str(sum(case.find("skipped") is not None for case in cases)))
    ET.indent(root, " ")
    written: bytes = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    return written + b"\n"


def by_arm(judged: Judged) -> dict[str, list[Finding]]:
    """Findings by the arm that they are of; ``run`` for those that are of the whole run."""
    out: dict[str, list[Finding]] = {arm: [] for arm in judged.cell.arms}
    for finding in judged.findings:
        out.setdefault(finding.arm or "run", []).append(finding)
    return out


def _case(suite: ET.Element, judged: Judged, arm: str, findings: list[Finding]) -> None:
    cell = judged.cell
    name = f"{arm} seed={cell.seed}"
    case = ET.SubElement(suite, "testcase", classname=f"{judged.scenario}.{cell.variant}", name=clean(name))
    properties = ET.SubElement(case, "properties")
    told = {"seed": str(cell.seed), "digest": judged.digest, "baseline": cell.digest, **_parts(arm)}
    for key, value in told.items():
        ET.SubElement(properties, "property", name=key, value=clean(value))
    _outcome(case, judged, findings)
    if judged.folder is None and not findings:
        ET.SubElement(case, "skipped", message="the run was not played")


def _outcome(case: ET.Element, judged: Judged | None, findings: list[Finding]) -> None:
    for outcome, tag in (("failed", "failure"), ("unknown", "error")):
        of_kind = [f for f in findings if f.outcome == outcome]
        if of_kind:
            element = ET.SubElement(case, tag, message=clean(of_kind[0].text), type=of_kind[0].rule)
            element.text = clean("\n\n".join(as_text(judged, f) for f in of_kind))
            return
    notes = [as_text(judged, f) for f in findings if f.outcome == "noted"]
    if notes:
        ET.SubElement(case, "system-out").text = clean("\n\n".join(notes))


def _parts(arm: str) -> dict[str, str]:
    """The layer that an arm bypasses, or the fix that is on in it."""
    if arm.startswith("faulty-without:"):
        return {"layer": arm.partition(":")[2]}
    return {"fix": arm.partition("+")[2]} if "+" in arm else {}


def as_text(judged: Judged | None, finding: Finding) -> str:
    return "\n".join(f"{name}: {text}" if name else text for name, text in lines(judged, finding))


def clean(text: str) -> str:
    return _FORBIDDEN.sub("?", text)
