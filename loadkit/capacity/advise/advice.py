"""One piece of advice: the calculation, then the conclusion, then what to change and how. Nothing is changed here.

Ask for what is missing first; then the first rule that matches says what to do in its layer. Layers before it were
looked at and need nothing; layers behind it wait until the step has been made and measured.
"""

from dataclasses import asdict, dataclass
from typing import Any

from loadkit.capacity.advise.launch import launch
from loadkit.capacity.advise.numbers import OVERHEAD_GB, REACH, Numbers, numbers
from loadkit.capacity.advise.rules import decide
from loadkit.capacity.advise.situation import Situation
from loadkit.capacity.advise.table import LAYERS, actions, engines, question, rejected, table
from loadkit.capacity.memory import GB, GIB
from loadkit.capacity.quant import Q4_K_M

CHATS, CHAT_TOKENS = 8, 32_768  # the article's example of long chats
MOVED = {"engine": "the engine", "scheduling": "settings", "architecture": "another model", "weights": "the weights"}
STOP_AT = 5.0  # bits from which lower ones are not advised


@dataclass(frozen=True, slots=True)
class Advice:
    """What to do and why, in the order in which it is shown. Numbers are those of `numbers`."""

    layer: str
    action: str
    route: str
    title: str
    why: str
    calculation: tuple[str, ...]
    numbers: Numbers | None
    rejected: str | None
    launch: str | None
    layers: tuple[dict[str, str], ...]
    questions: tuple[dict[str, str], ...]  # the one that is needed, or those that would sharpen the answer
    stop: tuple[dict[str, str], ...]  # to answer before weights are touched
    notes: tuple[str, ...]
    budgets: dict[str, float | None]

    @property
    def reversible(self) -> bool:
        """Free and taken back by a restart: the first two layers."""
        return self.layer in LAYERS[:2]

    def as_dict(self) -> dict[str, Any]:
        """Plain values, JSON ready."""
        flat = asdict(self.numbers) if self.numbers else {}
        flat.pop("calculation", None)
        return {"schema": "loadkit-advice/1", **asdict(self), "numbers": flat, "reversible": self.reversible}


def advise(given: Situation, model: str = "MODEL", *, carded: bool = False) -> Advice:
    """The advice for a situation; `model` stands in launch commands.

    `carded`: a model card is at hand, which tells the size of the weights once their quantisation is known.
    """
    turned_down = _turned_down(given)
    missing = given.missing()
    if missing:
        return _ask(_next(missing, carded), turned_down)
    made = numbers(given)
    key, words = decide(given, made)
    row = actions()[key]
    filled = {**asdict(given), **asdict(made), **words}
    filled |= {"ctx": given.ctx_set, "bits": given.quant_bits, "lack_gb": max(0.0, -made.left_gb)}
    filled["short_percent"] = 100 * made.short_share
    return Advice(
        layer=row["layer"],
        action=row.get("name", key).format(**filled),
        route=row["route"],
        title=row["title"].format(**filled),
        why=row["why"].format(**filled),
        calculation=made.calculation,
        numbers=made,
        rejected=turned_down,
        launch=launch(given, key, words, model),
        layers=_layers(given, made, row["layer"], row["title"].format(**filled)),
        questions=tuple(_plain_question(field) for field in sharpening(given, made)),
        stop=stop_check(given, made) if row["layer"] == "weights" else (),
        notes=_notes(given, made, row["layer"]),
        budgets=budgets(given, made),
    )


def sharpening(given: Situation, made: Numbers) -> list[str]:
    """Unanswered questions whose answer could change this advice, in the order of asking."""
    wanted = []
    if not made.fits:
        wanted += ["ctx_needed", "ctx_hard"]
    if not made.weights_fit:
        wanted += ["moe", "layers", "pcie_gen"]
    if (given.users or 1) > 1 or (given.prefill_share or 0) >= 0.5:
        wanted += ["shared_prefix_share"]
    if (given.shared_prefix_share or 0) >= 0.5:
        wanted += ["prefix_reuse"]
    if made.fits:
        wanted += ["prefill_share", "bw_gbs", "target_tps"]
    return [field for field in wanted if getattr(given, field) is None]


def stop_check(given: Situation, made: Numbers) -> tuple[dict[str, str], ...]:
    """The four questions before weights are touched, each with what is known."""
    asked = [each["ask"] for each in table()["stop"]]
    bits = given.quant_bits or 0.0
    level = max((row for row in table()["ladder"] if row["bits"] <= bits), key=lambda row: row["bits"], default=None)
    below = max(
        (row for row in table()["ladder"] if level and row["bits"] < level["bits"]),
        key=lambda row: row["bits"],
        default=None,
    )
    lower = "nothing below" if below is None else f"{below['bits']} bit: {below['says']}"
    if bits <= STOP_AT:
        lower += "; stop here"
    first = "shorter context or offloading first" if not made.fits else "it fits, so no memory has to be gained"
    answers = (
        "yes" if bits < 16 else "no",
        f"{bits:g} bits" + (f": {level['says']}" if level else ""),
        f"{given.weights_gb:g} GB at most halve with the bits. {lower}",
        first,
    )
    return tuple({"ask": ask, "known": known} for ask, known in zip(asked, answers, strict=True))


def misreadings(kv_bytes_per_token: float) -> tuple[dict[str, str], ...]:
    """The three sentences that are misread, and what is true of this model."""
    chats = CHATS * CHAT_TOKENS * kv_bytes_per_token
    words = {"seqs_example": CHATS, "chats_gb": chats / GB, "chats_gib": chats / GIB}
    return tuple({"says": each["says"], "is": each["is"].format(**words)} for each in table()["misreading"])


def budgets(given: Situation, made: Numbers) -> dict[str, float | None]:
    """The largest model by size and by speed, in parameters at 4 bit (or the platform's narrowest weights).

    Total: what fits beside the cache of the needed context. Active: what the bandwidth reads at the target rate.
    """
    bits = max(Q4_K_M, given.min_quant_bits or 0.0)
    room = made.budget_gb - made.kv_needed_gb - OVERHEAD_GB
    total = max(0.0, room) * GB * 8 / bits
    active = None
    if given.bw_gbs is not None and given.target_tps is not None:
        active = max(0.0, REACH * given.bw_gbs / given.target_tps - made.kv_needed_gb) * GB * 8 / bits
    return {"bits": bits, "largest_total": total, "largest_active": active}


def _next(missing: list[str], carded: bool) -> str:
    """The question to ask: the first, but never for a size that a card tells after the next answer."""
    if carded and missing[0] == "weights_gb" and "quant_bits" in missing:
        return "quant_bits"
    return missing[0]


def _ask(field: str, turned_down: str | None) -> Advice:
    row, asked = actions()["ask"], question(field)["ask"]
    waiting = tuple({"layer": layer, "conclusion": "waits for an answer"} for layer in LAYERS)
    return Advice(
        layer="ask",
        action=f"ask:{field}",
        route=row["route"],
        title=row["title"],
        why=row["why"].format(ask=asked),
        calculation=(),
        numbers=None,
        rejected=turned_down,
        launch=None,
        layers=waiting,
        questions=(_plain_question(field),),
        stop=(),
        notes=(),
        budgets={},
    )


def _plain_question(field: str) -> dict[str, str]:
    asked = question(field)
    return {"field": field, "kind": asked["kind"], "ask": asked["ask"]}


def _turned_down(given: Situation) -> str | None:
    if given.want is None or (given.want == "lower_bits" and (given.quant_bits or 0.0) > STOP_AT):
        return None
    return rejected()[given.want]


def _layers(given: Situation, made: Numbers, layer_advised: str, title: str) -> tuple[dict[str, str], ...]:
    """A conclusion for each of the four layers: looked at, advised, or waiting."""
    at = LAYERS.index(layer_advised) if layer_advised in LAYERS else len(LAYERS)
    told = []
    for index, layer in enumerate(LAYERS):
        if index == at:
            text = title
        elif index < at:
            text = _nothing(layer, given, made)
        else:
            text = f"not looked at: one change at a time, and {MOVED[layer]} only after it is measured"
        told.append({"layer": layer, "conclusion": text})
    return tuple(told)


def _nothing(layer: str, given: Situation, made: Numbers) -> str:
    """Why a layer that was looked at needs no change."""
    engine = engines()[given.engine or "other"]
    if layer == "engine":
        if (given.users or 1) == 1:
            return "one user: another engine brings nothing"
        return "it batches users" if engine["batching"] else "it does not fit yet, so another engine changes nothing"
    if layer == "scheduling":
        return "it fits, and no setting is wasteful" if made.fits else "no setting makes it fit"
    if layer == "architecture":
        return "the model's size and cache allow what is wanted"
    return (
        "at 4 bit, or as narrow as the platform goes: stop here" if not made.can_quantise else "no need to touch them"
    )


def _notes(given: Situation, made: Numbers, layer: str) -> tuple[str, ...]:
    notes = []
    if not made.weights_fit and given.moe is None:
        notes.append("taken as dense; a mixture of experts would be offloaded by experts")
    if not made.fits and given.ctx_needed is None and not given.ctx_hard:
        notes.append("nobody said how long a context is needed: 16384 tokens are taken where they fit")
    if layer == "weights" and made.weights_floor_gb > made.left_gb + (given.weights_gb or 0.0):
        notes.append("4 bit alone will not make it fit: what lacks then is offloaded, or the model is too big")
    if layer in ("weights", "architecture"):
        notes.append(
            "a bigger model at 4 bit comes before a smaller one at 16: 70B at Q4 (40 GB) before 13B at 16 bit (26 GB)"
        )
    return tuple(notes)
