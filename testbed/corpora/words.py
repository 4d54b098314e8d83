"""The words of the ledger: tenants, entities, general sentences. Data only."""

from __future__ import annotations

from typing import NamedTuple


class Tenant(NamedTuple):
    """A company; ``codes`` are its own names for the entities, in the order of ``ENTITIES`` then ``OTHERS``."""

    id: str
    company: str
    codes: tuple[str, ...]


ENTITIES = (
    "payment gateway", "nightly export job", "customer portal", "search cluster", "invoice archive",
    "warehouse scanner", "fraud monitor", "email relay", "image resizer", "route planner", "login service",
    "report builder", "price feed", "chat assistant", "mobile app", "data lake", "print server", "booking engine",
)  # fmt: skip

# Entities nobody asks about: they fill the pages with look-alikes.
OTHERS = ("label designer", "voucher store", "survey tool", "badge reader", "fax bridge", "wiki mirror")

TENANTS = (
    Tenant("norvik", "Norvik Freight", (
        "Heron", "Osprey", "Falcon", "Sparrow", "Kestrel", "Raven", "Magpie", "Plover", "Bunting", "Finch", "Pelican",
        "Gull", "Wren", "Owl", "Robin", "Egret", "Lark", "Condor", "Puffin", "Stork", "Curlew", "Bittern", "Petrel",
        "Siskin",
    )),
    Tenant("halden", "Halden Retail", (
        "Granite", "Basalt", "Quartz", "Marble", "Slate", "Flint", "Opal", "Amber", "Jasper", "Onyx", "Topaz", "Garnet",
        "Cobalt", "Pumice", "Obsidian", "Agate", "Shale", "Chalk", "Gypsum", "Beryl", "Zircon", "Mica", "Dolomite",
        "Feldspar",
    )),
    Tenant("castell", "Castell Energy", (
        "Volga", "Danube", "Rhone", "Tagus", "Loire", "Elbe", "Oder", "Tiber", "Seine", "Rhine", "Thames", "Ebro",
        "Douro", "Neva", "Vistula", "Clyde", "Severn", "Shannon", "Arno", "Garonne", "Meuse", "Drava", "Vltava",
        "Tweed",
    )),
    Tenant("marlow", "Marlow Health", (
        "Maple", "Cedar", "Willow", "Aspen", "Birch", "Hazel", "Rowan", "Alder", "Juniper", "Cypress", "Linden",
        "Poplar", "Spruce", "Sycamore", "Hawthorn", "Laurel", "Elm", "Walnut", "Olive", "Acacia", "Magnolia", "Yew",
        "Hemlock", "Hornbeam",
    )),
)  # fmt: skip

OPENERS = (
    "This page belongs to the runbook of {e}.",
    "Operators of {e} should read this page before they change a setting.",
    "The operations handbook of {company} has a page for every setting of {e}.",
    "What follows holds for the production copy of {e}.",
    "New colleagues who look after {e} start here.",
    "This entry was checked during the last handbook review.",
)

REMARKS = (
    "Changes need the approval of two people from the operations board.",
    "Please open a ticket before you touch this setting.",
    "The figure was agreed with the departments that depend on it.",
    "An alert is raised when the running system departs from this page.",
    "Exceptions are granted by the head of operations only.",
    "The setting is read at start-up, so a restart is needed after a change.",
    "Earlier pages on this topic can be found in the archive of the handbook.",
    "The on-call engineer may override it in an emergency and must write a report afterwards.",
    "The entry is copied from the configuration repository by a nightly script.",
    "Nobody has asked for a change since the handbook was rewritten.",
    "The choice follows from a load test that is described elsewhere.",
    "Partners are told about it in the welcome pack.",
    "If in doubt, ask in the operations channel first.",
)

# {a} attribute: no entity, so no claim.
ABOUT = (
    "Dashboards show it under the heading {a}.",
    "The board looks at every {a} once a year.",
    "A change of the {a} is announced one month ahead.",
    "Whoever needs another {a} fills in the usual form.",
)

CONVENTION_OPENERS = (
    "This page is binding for every department of {company}.",
    "{company} keeps its house rules in one place so that pages stay short.",
    "Handbook pages give bare entries; this page says how to read them.",
    "The standards desk of {company} maintains this page.",
)

CONVENTION_REMARKS = (
    "Pages that refer to it are not rewritten when it changes.",
    "Questions go to the standards desk.",
    "It applies to old and new entries alike.",
    "Departments were told by circular letter.",
    "The desk reviews it twice a year.",
)

# General notes: an entity, but none of its settings.
CHATTER = (
    "The people behind {e} meet after lunch to go through open tickets.",
    "A short film about {e} is shown to new colleagues at {company}.",
    "The diagram of {e} hangs in the corridor next to the kitchen.",
    "Most questions about {e} are answered in the operations channel.",
    "The name {e} was chosen in a vote among the staff.",
    "Visitors often ask how {e} came about; the intranet tells the story.",
    "A student wrote a thesis on the history of {e}.",
    "The training room has a sandbox in which {e} can be tried out.",
)

SMALL_TALK = (
    "Cake is served at the end.",
    "The canteen on the ground floor has the details.",
    "Pictures are kept by the communications desk.",
    "The company choir sang about it at the summer party.",
    "Ideas for a mascot are welcome.",
)
