from __future__ import annotations

import itertools
import re
from collections import defaultdict
from functools import cache

import pytest

from testbed.core.types import Claim, Doc
from testbed.corpora.facts import FactCorpus
from testbed.corpora.ledger import build_ledger
from testbed.corpora.lifecycle import build_lifecycle
from testbed.metrics.claims import equals, extract, supported

LEXICON = {
    "entities": {
        "payment gateway": ["payment gateway", "Heron", "Granite"],
        "price feed": ["price feed", "Wren"],
        "wiki mirror": ["wiki mirror", "Bittern"],
    },
    "attributes": {
        "request timeout": {"phrases": ["request timeout"], "form": "number", "convention": "Call Timing Standard"},
        "monthly fee": {"phrases": ["monthly fee"], "form": "money", "convention": "Billing Standard"},
        "lifecycle status": {"phrases": ["lifecycle status"], "form": "code", "convention": "Status List",
                             "values": ["1", "2", "3"]},
        "audit date": {"phrases": ["audit date"], "form": "code", "convention": "Audit Policy", "values": ["P1", "P2"]},
        "retry limit": {"phrases": ["retry limit"], "form": "number", "convention": ""},
        "setup cost": {"phrases": ["setup cost"], "form": "money", "convention": ""},
        "contract start": {"phrases": ["contract start"], "form": "date", "convention": ""},
        "hosting region": {"phrases": ["hosting region"], "form": "term", "convention": "",
                           "values": ["Oslo", "Milan"]},
    },
    "conventions": {
        "Call Timing Standard": {"kind": "unit", "units": ["ms", "s", "min"]},
        "Billing Standard": {"kind": "unit", "units": ["EUR", "USD"]},
        "Status List": {"kind": "meanings", "keys": ["1", "2", "3"]},
        "Audit Policy": {"kind": "dates", "keys": ["P1", "P2"]},
    },
    "units": {
        "ms": ["ms", "milliseconds"], "s": ["s", "second", "seconds"], "min": ["min", "minutes"],
        "attempts": ["attempts"], "EUR": ["EUR", "euros", "€"], "USD": ["USD", "US dollars", "$"],
    },
    "qualifiers": {"staging": ["staging"], "archived": ["formerly", "until"]},
    "stands_for": ["means", "stands for", "starts on"],
}  # fmt: skip
TIMING = "Under the Call Timing Standard, every request timeout is given in milliseconds."
TIMEOUT = "The request timeout of Heron is 30, to be read with the unit of the Call Timing Standard."
STATUS = "The Status List explains the entries: 1 means in trial, 2 means on hold, and 3 means switched off."
AUDIT = "Under the Audit Policy, P1 starts on 20 January 2025, P2 starts on 17 March 2025."


def claim(attribute: str, value: str, unit: str = "", entity: str = "payment gateway") -> Claim:
    return Claim(entity, attribute, value, unit)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Heron has the retry limit 5.", claim("retry limit", "5")),
        ("The retry limit of the Payment Gateway is 5 attempts.", claim("retry limit", "5", "attempts")),
        ("For the payment gateway Heron the retry limit is 1,200 attempts.", claim("retry limit", "1200", "attempts")),
        ("The setup cost of Heron is EUR 1,200.50.", claim("setup cost", "1200.5", "EUR")),
        ("The setup cost of Heron is 1200.50 euros.", claim("setup cost", "1200.5", "EUR")),
        ("The setup cost of Heron is $1,200.", claim("setup cost", "1200", "USD")),
        ("The contract start of Heron is 4 March 2024.", claim("contract start", "2024-03-04")),
        ("The contract start of Heron is March 4, 2024.", claim("contract start", "2024-03-04")),
        ("The contract start of Heron is 2024-03-04.", claim("contract start", "2024-03-04")),
        ("Heron uses Oslo as its hosting region.", claim("hosting region", "Oslo")),
        ("The request timeout of Heron is 30s.", claim("request timeout", "30", "s")),
        ("The request timeout of Heron is 30 seconds.", claim("request timeout", "30", "s")),
        (TIMEOUT, claim("request timeout", "30")),
        (f"{TIMEOUT} {TIMING}", claim("request timeout", "30", "ms")),
        (f"{TIMING} {TIMEOUT}", claim("request timeout", "30", "ms")),
        (f"Heron has the lifecycle status 2. {STATUS}", claim("lifecycle status", "2", "on hold")),
        (f"Heron has the lifecycle status 3. {STATUS}", claim("lifecycle status", "3", "switched off")),
        (f"The audit date of Heron is P2. {AUDIT}", claim("audit date", "P2", "2025-03-17")),
        ("In staging, Heron has the retry limit 5.", claim("retry limit [staging]", "5")),
        (f"Until May the request timeout of Heron was 30. {TIMING}", claim("request timeout [archived]", "30")),
        ("Wren has the retry limit 5.", claim("retry limit", "5", entity="price feed")),
    ],
)  # fmt: skip
def test_a_statement_is_read(text: str, expected: Claim) -> None:
    assert [c for c in extract(text, LEXICON) if c.entity in LEXICON["entities"]] == [expected]  # type: ignore[operator]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "The passages do not say.",
        "Heron is a bird. The retry limit is 5.",
        "Heron and Wren share the retry limit 5.",
        "The retry limit and setup cost of Heron are 5.",
        "The retry limit of Heron lies between 5 and 9.",
        "The retry limit of Heron is high.",
        "The retry limit of a heron is 5.",
        "The retry limit of Heronry is 5.",
        "The contract start of Heron is 4 March.",
        "The hosting region of Heron is Milano.",
        "The lifecycle status of Heron is 12.",
        "Dashboards show it under the heading retry limit.",
        "\0\n\n. . .",
    ],
)
def test_what_is_not_clear_gives_no_claim(text: str) -> None:
    assert extract(text, LEXICON) == ()


def test_two_conventions_that_disagree_give_two_claims() -> None:
    later = TIMING.replace("milliseconds", "seconds")
    found = extract(f"{TIMEOUT} {TIMING} {later}", LEXICON)
    assert found == (claim("request timeout", "30", "ms"), claim("request timeout", "30", "s"))


def test_a_convention_by_itself_is_a_claim_about_all_of_its_entries() -> None:
    assert extract(TIMING, LEXICON) == (Claim("Call Timing Standard", "request timeout", "*", "ms"),)
    assert extract(AUDIT, LEXICON) == (
        Claim("Audit Policy", "audit date", "P1", "2025-01-20"),
        Claim("Audit Policy", "audit date", "P2", "2025-03-17"),
    )


def test_a_convention_that_names_two_units_says_nothing() -> None:
    assert extract("The Call Timing Standard allows seconds and minutes.", LEXICON) == ()


def test_the_same_claim_twice_counts_once() -> None:
    assert len(extract("Heron has the retry limit 5. The retry limit of Heron is 5.", LEXICON)) == 1


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        (claim("request timeout", "30", "s"), claim("request timeout", "30000", "ms"), True),
        (claim("request timeout", "2", "min"), claim("request timeout", "120", "s"), True),
        (claim("request timeout", "30", "s"), claim("request timeout", "30", "ms"), False),
        (claim("request timeout", "30", "s"), claim("request timeout", "30", ""), False),
        (claim("x", "1", "week"), claim("x", "7", "day"), True),
        (claim("x", "2", "GB"), claim("x", "2000", "MB"), True),
        (claim("x", "2", "GB"), claim("x", "2", "s"), False),
        (claim("x", "3.10"), claim("x", "3.1"), False),
        (claim("x", "2024-03-04"), claim("x", "4 March 2024"), True),
        (claim("x", "3", "On  hold"), claim("x", "3", "on hold"), True),
        (claim("x", "3", "on hold"), claim("y", "3", "on hold"), False),
        (claim("x", "3"), claim("x", "3", entity="price feed"), False),
        (claim("x", "many", "s"), claim("x", "more", "ms"), False),
    ],
)
def test_equal_claims_say_the_same(a: Claim, b: Claim, same: bool) -> None:
    assert equals(a, b) is same
    assert equals(b, a) is same


def test_a_composed_claim_is_supported_by_its_two_passages() -> None:
    served = [*extract(TIMEOUT, LEXICON), *extract(TIMING, LEXICON)]
    assert supported(claim("request timeout", "30", "ms"), served)
    assert not supported(claim("request timeout", "30", "s"), served)
    assert not supported(claim("request timeout", "31", "ms"), served)
    assert not supported(claim("request timeout", "30", "ms"), served[:1])
    assert not supported(claim("request timeout", "30", "ms"), served[1:])
    assert not supported(claim("request timeout", "30", "ms"), [])


def test_a_bare_entry_is_supported_by_any_statement_of_it() -> None:
    assert supported(claim("request timeout", "30"), [claim("request timeout", "30", "ms")])
    assert not supported(claim("request timeout", "30"), [claim("request timeout", "31", "ms")])
    assert not supported(claim("request timeout", "30"), [claim("request timeout [staging]", "30")])


def test_another_lexicon_is_not_confused_with_the_last_one() -> None:
    text = "Heron has the retry limit 5."
    assert extract(text, LEXICON)
    assert extract(text, {**LEXICON, "entities": {"price feed": ["Wren"]}}) == ()
    assert extract(text, LEXICON)


# --- over the whole ledger


@cache
def ledger() -> FactCorpus:
    return build_ledger()


@cache
def states() -> dict[str, list[Doc]]:
    found: dict[str, list[Doc]] = defaultdict(list)
    for doc in (*ledger().docs, *(r.doc for r in ledger().revisions)):
        found[doc.id].append(doc)
    return found


def best_sentence(doc: Doc) -> str:
    """The one sentence of a page that holds claims, as an oracle would pick it."""
    found = [s for s in re.split(r"(?<=\.)\s+", doc.text) if extract(s, ledger().lexicon)]
    assert len(found) == 1, doc.text
    return found[0]


def test_every_true_answer_of_the_ledger_at_every_state_is_read_as_the_true_claim() -> None:
    checked = 0
    for query in (q for q in ledger().queries if q.id.endswith("-q0")):
        for record in states()[ledger().records[query.id]]:
            for meanings in itertools.product(*(states()[ref] for ref in record.refs)):
                versions = {record.id: record.version, **{d.id: d.version for d in meanings}}
                truth = ledger().gold(0, query, versions).claim
                answer = " ".join(best_sentence(doc) for doc in (record, *meanings))
                assert extract(answer, ledger().lexicon) == (truth,), answer
                passages = " ".join(doc.text for doc in (record, *meanings))
                assert extract(passages, ledger().lexicon) == (truth,)
                served = [c for doc in (record, *meanings) for c in extract(doc.text, ledger().lexicon)]
                assert truth is not None and supported(truth, served)
                checked += 1
    assert checked == 4 * (54 * 3 + 18 + 10)


def test_no_page_of_the_ledger_is_read_as_saying_what_it_does_not() -> None:
    for doc in (doc for found in states().values() for doc in found):
        claims = extract(doc.text, ledger().lexicon)
        fact = ledger().facts.get((doc.id, doc.version), {})
        if doc.kind == "note":
            assert all("[" in c.attribute for c in claims)  # staging, past, plans: never the setting of today
        elif "entity" in fact:
            assert claims == (Claim(fact["entity"], fact["attribute"], fact["value"], fact["unit"]),)
        elif doc.kind == "convention":
            meanings = fact.get("meanings") or {"*": fact["unit"]}
            assert {c.value: c.unit for c in claims} == dict(meanings)
            assert {c.entity for c in claims} == {fact["convention"]}


def test_claims_of_many_pages_together_are_the_claims_of_each() -> None:
    for tenant in ledger().canaries:
        docs = [d for d in ledger().docs if d.tenant == tenant and (d.id, 1) in ledger().facts]
        together = set(extract(" ".join(d.text for d in docs), ledger().lexicon))
        versions = {d.id: 1 for d in docs}
        truths = {ledger().gold(0, q, versions).claim for q in ledger().queries if q.tenant == tenant}
        assert truths <= together
        known = {(c.entity, c.attribute) for c in truths if c}
        assert {c for c in together if (c.entity, c.attribute) in known} == truths


def test_every_page_of_the_life_cycle_set_is_read() -> None:
    corpus = build_lifecycle()
    for doc in (*corpus.docs, *(r.doc for r in corpus.revisions)):
        fact = corpus.facts[doc.id, doc.version]
        assert extract(doc.text, corpus.lexicon) == (Claim(fact["entity"], fact["attribute"], fact["value"], ""),)
