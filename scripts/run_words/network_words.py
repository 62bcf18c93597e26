"""What a measured run says of the network between its nodes, in bytes/s per device and as a link of the catalogue."""

from __future__ import annotations

from typing import Final, NamedTuple

from run_words import heard as re

SCALE: Final = {"M": 1e6, "G": 1e9, "T": 1e12}
FASTEST_CARD: Final = 50e9
"""Bytes/s of 400 Gb/s: what is more, not counted and not of faster cards, is of a node."""
FASTER_CARDS: Final = re.compile(r"\bXDR|\bConnectX-?8|\bCX-?8|\bX800", re.IGNORECASE)
"""Names of cards and networks of 800 Gb/s."""
MOST_PER_GPU: Final = 4
"""More cards than that, called "per GPU", are a node's, of which every GPU has one."""
WITHIN: Final = re.compile(
    r"\b(none|single|ici|inside|torus|nvlink|not (stated|detailed))\b|^\W*$",
    re.IGNORECASE,
)
"""Words on a network that name no bandwidth because there is none, or none that is stated."""

UNNAMED: Final = (
    r"^(?!.*(infiniband|\bib\b|[efhnqx]dr\b|roce|rdma|gaudi|hpu))"
    r".*(\bethernet\b|\b\d\d ?gb(/s|ps)|\b(10|25|40|50|100) ?gbe\b|\b(ena|g?vnic|vpc)\b)"
)
"""Ethernet without remote memory access, and what is under 100 Gb/s and not named. Gaudi's own ports have it."""
NETWORKS: Final[tuple[tuple[str, str], ...]] = (
    (r"omni-?path|\bopa\b", "omni-path-100"),
    (r"slingshot", "slingshot-200"),
    (r"\befa\b.*nccl 2\.18", "efa-400-nccl2.18"),
    (r"\befa(v\d)?\b", "efa-400"),
    (r"spectrum-?x", "roce-400"),
    (UNNAMED, "ethernet-tcp"),
    (r"roce.*(200gb|\b200 ?g|x200\b)|(200gb|\b200 ?g).*roce", "roce-200"),
    (r"roce", "roce-400"),
)
"""First match of a run's words on its network names the link whose efficiency and latency it has.

Ethernet without remote memory access, and any network under 100 Gb/s that is not named, carries TCP."""

RATE: Final = re.compile(
    r"(?P<number>\d+(?:\.\d+)?)\s*(?:"
    r"(?P<scale>[MGTmgt])(?:(?P<unit>b(?:its?)?|B)(?:[pP][sS]\b|[eEP/])|[bB]?E\b|b\b|bit\b)"
    r"|(?P<bare>[MGTg])\b"
    r"|(?P<word>(?i:mega|giga|tera))bits?\b)",
)
"""A bandwidth: number, scale, and bits or bytes; "200G" and "400GE" are of Ethernet, in bits."""
GENERATION: Final = re.compile(r"\b(QDR|FDR|EDR|HDR|NDR|XDR)[- ]?(\d{2,3})?\b", re.IGNORECASE)
"""Of InfiniBand, by which a card is called; what comes behind are its Gb/s, where it has not all lanes (HDR100)."""
GENERATIONS: Final = {"QDR": 32, "FDR": 56, "EDR": 100, "HDR": 200, "NDR": 400, "XDR": 800}
"""Gb/s of four lanes."""
PRODUCTS: Final[tuple[tuple[str, int], ...]] = (
    (r"slingshot[- ]?11", 200),
    (r"slingshot[- ]?10", 100),
    (r"quantum[- ]?2|\b(connectx|cx|bluefield|bf)[- ]?[37]\b", 400),
    (r"quantum[- ]?x800|\b(connectx|cx)[- ]?8\b", 800),
)
"""Names of networks and cards, and Gb/s of a port where the words say no rate: as their vendors' data sheets have it
(recalled)."""
NUMBERED: Final = re.compile(
    r"\b(?:connectx|cx|bluefield|bf|quantum|slingshot|spectrum|roce ?v|efa ?v)[- ]?x?\d+\b", re.IGNORECASE
)
"""Names with a number that counts nothing."""
BARE: Final = re.compile(
    r"(?:\b\d{1,2}x |\b(?:omni-?path|opa|efa|roce|infiniband|ib|rdma|net) )"
    r"(10|25|40|50|56|100|200|400|800|1600|3200)\b",
    re.IGNORECASE,
)
"""A usual rate in Gb/s that stands without its unit, behind a count or the name of a network."""
TIMES: Final = re.compile(r"(?<![\w.-])(\d{1,2})\s*(?:[x*\u00d7]|X(?=\d))\s*(?=[A-Za-z\d])(?!large)")
"""A count of cards before what it counts, also without a space; not the size of a machine, as in p4d.24xlarge."""
CARDS: Final = re.compile(
    r"(?<![\w.-])(\d{1,2})(?-i:x) |\s[x*\u00d7]\s?(\d{1,2})\b(?!\s*[MGT])"
    r"|(?<![\w.-])(\d{1,2}) (?![MGTmgt](?:b|ig|B))(?:[A-Za-z]+ ){0,3}?(?:(?:NIC|HCA|card|adapter|rail|port)s?\b"
    r"|links? ?(?:per|/) ?node\b)",
    re.IGNORECASE,
)
"""A count of cards, before or behind them, or by that word."""
VIRTUAL: Final = r"\b(?:ena|g?vnic|vpc)\b"
"""Networks of virtual machines, which carry TCP and are known by the machine."""
OF_A_DEVICE: Final = re.compile(
    r"(?:\bper |\beach |/ ?)(?:GPU|HPU|NPU|XPU|TPU|chip|accelerator|device)\b", re.IGNORECASE
)
NUMBERS: Final = {"two": 2, "four": 4, "eight": 8}
SHARED: Final = re.compile(
    r"\b(?:per|shared (?:by|among|between)|for(?: every)?) (two|four|eight|[248]) (?:GPU|NPU|device|accelerator)s"
    r"|\b(two|four|eight|[248]) (?:GPU|NPU|device|accelerator)s (?:per|share (?:an?|one|each)) "
    r"(?:NIC|HCA|card|adapter|port)",
    re.IGNORECASE,
)
"""So many devices that one card serves."""
BY_WORD: Final = re.compile(
    r"(?<![\w.-])(\d{1,2})(?:x| (?![gnhx]pu|accel|graph|nvlink|video)\w+)? ?(?:NIC|HCA|card|adapter)s?\b", re.IGNORECASE
)
RAILS: Final = r"\b(dual|two|quad|four|eight|[248])[- ]rail\b"
RAIL_WORDS: Final = {"dual": "2", "two": "2", "quad": "4", "four": "4", "eight": "8"}
"""Networks that every node has several of, a card in each."""
OF_A_NODE: Final = re.compile(
    r"\b(?:per|/) ?(?:node|host|server|machine|instance|vm|tray)\b|\bethernet\b|\befa\b|\btcp\b|(?<![a-z])gbe\b"
    rf"|\bsingle\b|{VIRTUAL}",
    re.IGNORECASE,
)
ONE_EACH: Final = re.compile(r"\b(?:one|1) (?:NIC|HCA|card|adapter) per GPU\b", re.IGNORECASE)
"""Tells how a node's cards are shared out, and counts none."""
INSIDE: Final = re.compile(r"^\s*(?:ici|nvlink|nvswitch|xgmi|infinity fabric|pcie)\b", re.IGNORECASE)
"""How a part of the words begins that is on the links inside a node."""


class Told(NamedTuple):
    """A bandwidth in words."""

    rate: float
    """Bytes/s of one card, or of what the words say."""
    clause: str
    """The part of the words that has it."""
    named: str = ""
    """What it was taken from where no rate is said: a product, or a number without its unit."""


def link_name(words: str, accelerator: str = "") -> str | None:
    """The link of the catalogue that the words name, on a network of that accelerator."""
    text = f"{words} of {accelerator}".replace("GB", "gbyte").lower()
    return next((name for pattern, name in NETWORKS if re.search(pattern, text)), None)


def lane_bandwidth(text: str, gpus_per_node: int, fastest: float = FASTEST_CARD) -> float | None:
    """Network bytes/s per GPU out of words such as "8x HDR 200Gb/s" or "800 Gb/s per node"; None if unsaid.

    Amazon's adapters are given by node. What its words do not count is of a GPU, unless it is more than a card's.

    Args:
        text: the words.
        gpus_per_node: devices that share what is given for the node.
        fastest: bytes/s of the fastest card that its machines are known with.
    """
    text = _plain(text)
    if (told := _told(text)) is None:
        return None
    limit = 2.0 * FASTEST_CARD if FASTER_CARDS.search(text) else max(FASTEST_CARD, fastest)
    cards, total = _cards(text, told, limit)
    bandwidth = (cards or 1) * told.rate
    if _of_devices(text, told.clause, cards, total):
        return bandwidth
    if (sharing := _sharing(text)) and (cards or 1) == 1:
        return bandwidth / sharing
    of_a_node = cards is not None or OF_A_NODE.search(text) or bandwidth > 1.01 * limit
    return bandwidth / gpus_per_node if of_a_node else bandwidth


def assumed(text: str, gpus_per_node: int, fastest: float = FASTEST_CARD) -> str:
    """What was assumed of words that leave their rate, or whose it is, to be guessed; empty where they do not."""
    lane, told = lane_bandwidth(text, gpus_per_node, fastest), _told(_plain(text))
    if lane is None or told is None:
        return ""
    if told.named:
        return f"network of {told.named!r} taken for {told.rate * 8e-9:g} Gb/s a card, {lane * 8e-9:g} Gb/s per GPU"
    said = OF_A_NODE.search(text) or _sharing(text) or _cards(_plain(text), told, FASTEST_CARD)[0] is not None
    guessed = lane < told.rate and not said
    return f"network of {text!r:.60} taken for a node's, being more than a card has" if guessed else ""


def _of_devices(text: str, clause: str, cards: int | None, total: bool) -> bool:
    """Whether a rate is every device's own, by the words around it or, where nothing is counted, by any."""
    if cards is None or total:
        return bool(OF_A_DEVICE.search(clause if total else text))
    alone = re.search(r"[(,;]\s*(?:each )?per GPU\s*[),;]?\s*$", text, re.IGNORECASE)
    return cards <= MOST_PER_GPU and bool(alone or OF_A_DEVICE.search(ONE_EACH.sub("", clause)))


def _plain(text: str) -> str:
    """The words without commas in numbers, with counts set apart, and without numbers that are names."""
    text = re.sub(r"(\d),(\d{3})\b", r"\1\2", text)
    text = re.sub(RAILS, lambda found: f" {RAIL_WORDS.get(found[1].lower(), found[1])}x ", text, flags=re.IGNORECASE)
    return TIMES.sub(r"\1x ", text)


def _told(text: str) -> Told | None:
    """The first rate that the words say, by number, by the generation of InfiniBand, or else by a name."""
    clauses = [clause for clause in re.split(r"[(),;+]", text) if not INSIDE.search(clause)]
    for clause in clauses:
        if (rate := _rate(clause)) is not None:
            return Told(rate, clause)
    return next((told for clause in clauses if (told := _named(clause)) is not None), None)


def _rate(text: str) -> float | None:
    """Bytes/s of one card, by its number or the generation of its network."""
    if found := RATE.search(text):
        scale = found["scale"] or found["bare"] or found["word"]
        return float(found["number"]) * SCALE[scale[0].upper()] * (1.0 if _in_bytes(found) else 0.125)
    if named := GENERATION.search(text):
        return float(named[2] or GENERATIONS[named[1].upper()]) * SCALE["G"] / 8.0
    return None


def _in_bytes(found: re.Match[str]) -> bool:
    return found["unit"] == "B" and not found[0].upper().endswith("BE")


def _named(clause: str) -> Told | None:
    """A rate without its unit, or that of a product."""
    if found := BARE.search(NUMBERED.sub("net", clause)):
        return Told(float(found[1]) * SCALE["G"] / 8.0, clause, found[0].strip())
    for pattern, gigabits in PRODUCTS:
        if product := re.search(pattern, clause, re.IGNORECASE):
            return Told(gigabits * SCALE["G"] / 8.0, clause, product[0])
    return None


def _cards(text: str, told: Told, limit: float) -> tuple[int | None, bool]:
    """Cards that a rate is one of, None where none are counted, and whether the rate is said to be that of them all.

    A rate that no card has, by ``limit``, is that of all, whatever other parts of the words count.
    """
    clause = told.clause
    if (own := _counted(clause)) is not None:
        return own, False
    if OF_A_NODE.search(clause) or OF_A_DEVICE.search(clause):
        return None, True
    before, _, after = text.partition(clause)
    if RATE.search(after):
        return None, True
    if told.rate > 1.01 * limit:
        return None, False
    counted = _counted(after)
    return (counted if counted is not None else _listed(before)), False


def _listed(before: str) -> int | None:
    """Cards counted by that word in the parts before the one with the rate; none of a part on links inside a node."""
    parts = [part for part in re.split(r"[(),;+]", before) if not INSIDE.search(part) and not RATE.search(part)]
    found = next((one for part in parts if (one := BY_WORD.search(part))), None)
    return int(found[1]) if found else None


def _sharing(text: str) -> int:
    """Devices that one card serves by the words; 0 where they do not say."""
    found = SHARED.search(text)
    told = (found[1] or found[2]).lower() if found else "0"
    return NUMBERS.get(told) or int(told)


def _counted(text: str) -> int | None:
    found = CARDS.search(NUMBERED.sub("net", text))
    return int(found[1] or found[2] or found[3]) if found else None
