"""Own question pairs: what a semantic cache should merge, and what it must keep apart. Written for this project."""

from __future__ import annotations

from testbed.claims.data import Pair

_SAME = (
    ("How do I reset my password?", "What are the steps to reset my password?"),
    ("When does the free trial end?", "On which date is the free trial over?"),
    ("What is the refund period for a laptop?", "How long can I return a laptop for a refund?"),
    ("Who approves travel expenses?", "Which person signs off travel expenses?"),
    ("Where can I download my invoice?", "From which page can I get my invoice?"),
    ("Is parking free for visitors?", "Do visitors park without paying?"),
    ("buy a phone", "purchase a phone"),
    ("book a flight", "buy an airline ticket"),
    ("cancel my subscription", "end my subscription"),
    ("How large may an upload be?", "What is the maximum size of an upload?"),
    ("Which databases are supported?", "What databases does it support?"),
    ("How do I rotate the API key?", "What is the way to rotate the API key?"),
    ("Why was my card declined?", "What is the reason my card was declined?"),
    ("How often are backups made?", "What is the frequency of backups?"),
    ("Can I change the delivery address?", "Is it possible to change the delivery address?"),
    ("What does the premium plan cost?", "What is the price of the premium plan?"),
    ("How do I invite a colleague?", "How can I add a colleague by invitation?"),
    ("Does the app work offline?", "Can the app be used without a connection?"),
    ("What is the warranty on the pump?", "How long is the pump under warranty?"),
    ("Which port does the gateway listen on?", "On what port is the gateway listening?"),
)
_APART = {
    "negation": (
        ("How do I enable two-factor login?", "How do I disable two-factor login?"),
        ("Which plans include support?", "Which plans do not include support?"),
        ("How do I turn the alarm on?", "How do I turn the alarm off?"),
        ("Can I return an opened box?", "Can I return an unopened box?"),
        ("Which countries need a visa?", "Which countries need no visa?"),
    ),
    "number": (
        ("What happens after 30 days?", "What happens after 45 days?"),
        ("Is a cart of 50 euros shipped free?", "Is a cart of 500 euros shipped free?"),
        ("How do I upgrade to version 2.1?", "How do I upgrade to version 2.2?"),
        ("What changed in release 14?", "What changed in release 15?"),
        ("Does error 403 lock my account?", "Does error 404 lock my account?"),
    ),
    "entity": (
        ("What is the fee for Alpha accounts?", "What is the fee for Beta accounts?"),
        ("Who leads the Berlin office?", "Who leads the Madrid office?"),
        ("How do I connect Postgres?", "How do I connect Redis?"),
        ("Where is the Orion data center?", "Where is the Vega data center?"),
        ("What does Anna earn?", "What does Peter earn?"),
    ),
    "unit": (
        ("What is the timeout in seconds?", "What is the timeout in milliseconds?"),
        ("How heavy is the box in kilograms?", "How heavy is the box in pounds?"),
        ("What is the limit in megabytes?", "What is the limit in gigabytes?"),
        ("What is the price in euros?", "What is the price in dollars?"),
        ("How far is it in miles?", "How far is it in kilometres?"),
    ),
    "role swap": (
        ("Can a manager overrule an auditor?", "Can an auditor overrule a manager?"),
        ("How do I move data from Oracle to Postgres?", "How do I move data from Postgres to Oracle?"),
        ("Does the buyer pay the seller?", "Does the seller pay the buyer?"),
        ("Convert euros to yen", "Convert yen to euros"),
        ("Who reports to the director?", "Who does the director report to?"),
    ),
    "date": (
        ("What was the rate in March?", "What was the rate in May?"),
        ("Which holidays fall in 2025?", "Which holidays fall in 2026?"),
        ("What is on the menu on Monday?", "What is on the menu on Friday?"),
        ("What did it cost last year?", "What does it cost this year?"),
        ("Is the office open today?", "Is the office open tomorrow?"),
    ),
    "quantifier": (
        ("Are all documents encrypted?", "Are some documents encrypted?"),
        ("Which is the cheapest plan?", "Which is the most expensive plan?"),
        ("What is the minimum order?", "What is the maximum order?"),
        ("Must every user sign?", "Must any user sign?"),
        ("What is the first step?", "What is the last step?"),
    ),
}

PAIRS: tuple[Pair, ...] = (
    *(Pair(a, b, True, "paraphrase") for a, b in _SAME),
    *(Pair(a, b, False, kind) for kind, both in _APART.items() for a, b in both),
)
TEXTS: tuple[str, ...] = tuple(dict.fromkeys(text for pair in PAIRS for text in (pair.first, pair.second)))
