"""What the ledger says of its entities: attributes, how they are asked for, and the rules that give them meaning."""

from __future__ import annotations

from typing import Literal, NamedTuple

Form = Literal["number", "money", "code", "term", "date"]


class Attribute(NamedTuple):
    """One thing that can be asked of an entity.

    ``gloss`` says the same in other words. ``drift`` is the kind of change that its meaning can undergo, "" for a
    value that carries its meaning with it. ``convention`` names the page that gives the meaning, "" likewise.
    ``values`` are the raw entries to draw from, in canonical form; ``unit`` is what a plain number counts.
    ``questions`` hold three wordings, ``{e}`` stands for the entity.
    """

    name: str
    gloss: str
    drift: str
    convention: str
    form: Form
    values: tuple[str, ...]
    unit: str
    questions: tuple[str, str, str]


def _a(name: str, gloss: str, drift: str, convention: str, form: Form, values: str, q1: str, q2: str) -> Attribute:
    questions = (f"What is the {name} of {{e}}?", q1, q2)
    return Attribute(name, gloss, drift, convention, form, tuple(values.split()), "", questions)


def _p(name: str, gloss: str, form: Form, values: str, unit: str, q1: str, q2: str) -> Attribute:
    return Attribute(
        name, gloss, "", "", form, tuple(values.split("|")), unit, (f"What is the {name} of {{e}}?", q1, q2)
    )


_STATES = "1 2 3 4 5 6"
_PHASES = "P1 P2 P3 P4 P5 P6"

DEPENDENT = (
    _a("request timeout", "the time it waits for a reply before it gives up", "unit", "Call Timing Standard", "number",
       "12 18 25 35 40 45 55 70 75 80 95 110 130 140 150 170",
       "Which request timeout is set for {e}?", "How long does {e} wait for a reply before it gives up?"),
    _a("disk quota", "the storage it may use at most", "unit", "Storage Sizing Standard", "number",
       "120 150 180 220 260 320 340 380 420 450 480 520 560 610 650 700",
       "How large is the disk quota of {e}?", "How much storage may {e} use at most?"),
    _a("log retention", "the time for which its logs are kept", "unit", "Log Keeping Standard", "number",
       "4 5 6 8 9 10 11 13 15 16 17 18 19 20 22 23",
       "How long is the log retention of {e}?", "For how long are the logs of {e} kept?"),
    _a("monthly fee", "what is paid for it each month", "currency", "Billing Standard", "money",
       "410.5 480 515.25 590 640.75 720 785.5 860 930.25 1010 1120.5 1240 1305.75 1490 1560.5 1680",
       "How high is the monthly fee for {e}?", "How much is paid for {e} each month?"),
    _a("outage penalty", "what an hour without it costs", "currency", "Penalty Schedule", "money",
       "2100 2350 2600 2850 3150 3400 3700 3950 4200 4550 4800 5150 5400 5750 6100 6350",
       "How high is the outage penalty for {e}?", "What does an hour without {e} cost?"),
    _a("annual budget", "the money it may spend in a year", "currency", "Budget Rulebook", "money",
       "18500 21000 23500 26000 28500 31000 34500 37000 39500 43000 46500 49000 52500 56000 61500 67000",
       "How large is the annual budget of {e}?", "How much money may be spent on {e} in a year?"),
    _a("lifecycle status", "its stage of life between design and retirement", "enum", "Lifecycle Status List",
       "code", _STATES, "Which lifecycle status does {e} have?",
       "Between design and retirement, at what stage of life is {e}?"),
    _a("escalation level", "who is called when it breaks down", "enum", "Escalation Level List", "code", _STATES,
       "Which escalation level applies to {e}?", "Who is called when {e} breaks down?"),
    _a("backup scheme", "how it is copied to safe storage", "enum", "Backup Scheme List", "code", _STATES,
       "Which backup scheme does {e} use?", "How is {e} copied to safe storage?"),
    _a("placement code", "where it runs and in what role", "composite", "Placement Code Table", "code",
       "A1 A2 B3 C1 D2 D3", "Which placement code does {e} carry?", "Where does {e} run and in what role?"),
    _a("access profile", "who is allowed to reach it", "composite", "Access Profile Table", "code",
       "R1 R3 W2 X1 X2 Z3", "Which access profile does {e} have?", "Who is allowed to reach {e}?"),
    _a("release channel", "how new builds get to it", "composite", "Release Channel Table", "code",
       "K2 K3 L1 M1 M2 N3", "Which release channel does {e} follow?", "How do new builds get to {e}?"),
    _a("encryption deadline", "the day by which its stored data must be encrypted", "policy-date", "Encryption Policy",
       "code", _PHASES, "Which encryption deadline applies to {e}?",
       "By which day must the stored data of {e} be encrypted?"),
    _a("audit date", "the day on which inspectors visit it", "policy-date", "Audit Policy", "code", _PHASES,
       "When is the audit date of {e}?", "On which day do the inspectors visit {e}?"),
    _a("cutover date", "the day it moves to the new platform", "policy-date", "Migration Policy", "code", _PHASES,
       "When is the cutover date of {e}?", "On which day does {e} move to the new platform?"),
    _a("helpdesk window", "the hours in which users get help", "definition", "Service Hours Glossary", "term",
       "core-hours wide-hours shop-hours desk-hours lean-hours full-cover",
       "Which helpdesk window does {e} have?", "In which hours do users of {e} get help?"),
    _a("data class", "how sensitive its content is", "definition", "Data Class Glossary", "term",
       "open-data house-data guarded-data sealed-data vault-data partner-data",
       "Which data class does {e} fall under?", "How sensitive is the content of {e}?"),
    _a("recovery grade", "how fast it must be back after a failure", "definition", "Recovery Glossary", "term",
       "gold-grade silver-grade bronze-grade iron-grade copper-grade tin-grade",
       "Which recovery grade does {e} have?", "How fast must {e} be back after a failure?"),
)  # fmt: skip

PLAIN = (
    _p("retry limit", "how often it repeats a failed call", "number", "3|4|5|6|7|8|9|10|11|12",
       "attempts", "How high is the retry limit of {e}?", "How often does {e} repeat a failed call?"),
    _p("network port", "where it listens", "number",
       "7411|7523|7688|7702|8117|8244|8391|8455|8803|9012|9127|9350", "",
       "Which network port does {e} use?", "On which port does {e} listen?"),
    _p("worker count", "how many processes serve it", "number", "14|16|21|24|27|28|32|36|38|42|44|48",
       "workers", "How high is the worker count of {e}?", "How many processes serve {e}?"),
    _p("batch size", "how many rows it handles at a time", "number",
       "250|400|550|640|720|900|1050|1200|1450|1700|2400|3600", "rows",
       "How large is the batch size of {e}?", "How many rows does {e} handle at a time?"),
    _p("owning team", "the people who look after it", "term",
       "Harbour Team|Meadow Team|Summit Team|Canyon Team|Island Team|Prairie Team|Glacier Team|Lagoon Team|Desert Team|"
       "Orchard Team", "",
       "Which owning team does {e} have?", "Which people look after {e}?"),
    _p("maintenance day", "when it is taken down for upkeep", "term",
       "Monday|Tuesday|Wednesday|Thursday|Friday|Saturday|Sunday", "",
       "Which maintenance day does {e} have?", "On which weekday is {e} taken down for upkeep?"),
    _p("hosting region", "the city where its machines stand", "term",
       "Frankfurt|Dublin|Oslo|Madrid|Warsaw|Lisbon|Vienna|Zurich|Helsinki|Milan", "",
       "Which hosting region does {e} use?", "In which city do the machines of {e} stand?"),
    _p("setup cost", "what its installation came to", "money",
       "8150|9240.5|10300|11475.25|12800|13950|15125.5|16640|17310|18990.75|20450|22600", "",
       "How high was the setup cost of {e}?", "What did the installation of {e} come to?"),
    _p("contract start", "since when it has been under contract", "date",
       "2021-02-15|2021-06-01|2021-09-20|2022-01-10|2022-04-04|2022-08-22|2022-11-14|2023-03-06|2023-05-30|2023-10-02|"
       "2024-01-15|2024-07-08", "",
       "When was the contract start of {e}?", "Since when has {e} been under contract?"),
)  # fmt: skip

# Unit conventions: each tenant goes through these in an order of its own, one a version.
UNITS = {
    "Call Timing Standard": ("ms", "s", "min"),
    "Storage Sizing Standard": ("MB", "GB", "TB"),
    "Log Keeping Standard": ("day", "week", "month"),
}
CURRENCIES = ("EUR", "USD", "GBP", "CHF", "SEK", "JPY")

MEANINGS = {
    "Lifecycle Status List": ("in design", "in trial", "in full use", "on hold", "being phased out", "switched off"),
    "Escalation Level List": (
        "the service desk", "the duty engineer", "the shift lead", "the operations manager", "the vendor hotline",
        "the crisis team"),
    "Backup Scheme List": (
        "a full copy each night", "a full copy each weekend", "hourly increments", "a live mirror",
        "tape at the end of the month", "no copy at all"),
    "Service Hours Glossary": (
        "08:00 to 18:00 on weekdays", "06:00 to 22:00 on weekdays", "09:00 to 17:00 from Monday to Saturday",
        "07:00 to 19:00 on all days", "10:00 to 16:00 on weekdays", "all hours of all days"),
    "Data Class Glossary": (
        "anyone may read it", "all staff may read it", "one department may read it", "named persons may read it",
        "board members may read it", "contract partners may read it"),
    "Recovery Glossary": (
        "back within one hour", "back within four hours", "back within eight hours", "back by the next morning",
        "back within two working days", "back when staff are free"),
}  # fmt: skip

# Composite codes: the letter alone counts at first; later the digit, then both with a further clause.
COMPOSITES = {
    "Placement Code Table": (
        {"A": "active", "B": "standby", "C": "draining", "D": "parked"},
        {"1": "in the north hall", "2": "in the south hall", "3": "in the rented hall"},
        "under manual control"),
    "Access Profile Table": (
        {"R": "readers", "W": "writers", "X": "administrators", "Z": "auditors"},
        {"1": "on the office network", "2": "on any network", "3": "on the plant network"},
        "with a second factor"),
    "Release Channel Table": (
        {"K": "early builds", "L": "stable builds", "M": "frozen builds", "N": "rebuilt images"},
        {"1": "after a signature", "2": "after a day of waiting", "3": "after a canary run"},
        "pushed by hand"),
}  # fmt: skip

# First days of the six phases; each tenant and policy shifts them, each version shifts them again.
PHASE_DAYS = (
    "2025-01-20", "2025-03-17", "2025-05-12", "2025-08-04", "2025-10-13", "2026-01-12",
)  # fmt: skip

# A word of these in a sentence says that it is not about the production setting of today.
QUALIFIERS = {
    "staging": ("staging", "rehearsal"),
    "archived": ("formerly", "used to", "until"),
    "planned": ("proposal", "proposed", "draft plan"),
}

ALIASES = {
    "ms": ("ms", "millisecond", "milliseconds"),
    "s": ("s", "sec", "second", "seconds"),
    "min": ("min", "minute", "minutes"),
    "h": ("h", "hour", "hours"),
    "day": ("day", "days"),
    "week": ("week", "weeks"),
    "month": ("month", "months"),
    "MB": ("MB", "megabyte", "megabytes"),
    "GB": ("GB", "gigabyte", "gigabytes"),
    "TB": ("TB", "terabyte", "terabytes"),
    "attempts": ("attempt", "attempts"),
    "workers": ("worker", "workers"),
    "rows": ("row", "rows"),
    "EUR": ("EUR", "€", "euro", "euros"),
    "USD": ("USD", "$", "US dollar", "US dollars"),
    "GBP": ("GBP", "£", "pound sterling", "pounds sterling"),
    "CHF": ("CHF", "Swiss franc", "Swiss francs"),
    "SEK": ("SEK", "Swedish krona", "Swedish kronor"),
    "JPY": ("JPY", "¥", "Japanese yen"),
}
LONG_UNIT = {
    "ms": "milliseconds", "s": "seconds", "min": "minutes", "day": "days", "week": "weeks", "month": "months",
    "MB": "megabytes", "GB": "gigabytes", "TB": "terabytes", "EUR": "euros", "USD": "US dollars",
    "GBP": "pounds sterling", "CHF": "Swiss francs", "SEK": "Swedish kronor", "JPY": "Japanese yen",
}  # fmt: skip
