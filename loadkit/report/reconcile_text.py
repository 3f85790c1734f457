"""What `loadkit reconcile` prints."""

from loadkit.capacity.boards.bound_check import Bench
from loadkit.capacity.boards.reconcile import Answer
from loadkit.plan.shown import shown

FORMULAS = (
    "bound = bandwidth / bytes read per token; efficiency = claim / bound; above 1 it is no decode rate of this model",
    "bytes read per token = (parameters of the body and the head, no input embedding) x bits / 8",
    "theoretical bandwidth = clock x 2 x bus bits / 8",
    "output tokens over the whole time = n_out / (n_in / prefill + n_out / decode), never above the decode rate",
    "all tokens over the whole time = (n_in + n_out) / (n_in / prefill + n_out / decode)",
    "an explanation fits within 10 %; one for which a length was chosen ranks behind one that needs none",
)


def show(known: Bench, answers: list[Answer], *, explain: bool = False) -> None:
    """Print the bound, then each claim: its sentence, what the bound says, what fits and what does not."""
    if known.bound and known.bandwidth and known.bytes_per_token:
        print(
            f"bound  {known.bandwidth / 1e9:.4g} GB/s ({shown(known.bandwidth_from)}) / "
            f"{known.bytes_per_token / 1e9:.4g} GB per token ({shown(known.bytes_from)}) = {known.bound:.4g} tokens/s"
        )
    if known.decode:
        source = f" ({known.other.source})" if known.other else ""
        prefill = f", prefill {known.prefill:g}" if known.prefill else ""
        print(f"known  decode {known.decode:g} tokens/s{prefill}{source}")
    for answer in answers:
        print(f"\n{answer.sentence}")
        if answer.check:
            print(f"  bound: {answer.check.sentence}")
            for cause in answer.check.causes[1:]:
                print(f"    {'or ' if cause.holds else 'not'} {cause.text}")
        for number, each in enumerate((e for e in answer.explanations if e.fits), 1):
            print(f"  {number}. {each.text} ({each.off:+.1%}) Look at: {each.look}.")
        for each in answer.explanations:
            if not each.fits:
                print(f"  -  {each.text} ({each.off:+.0%})")
    missing = _missing(known)
    if missing:
        print(f"\nGive {missing} for more.")
    if explain:
        print("\n".join(("", *FORMULAS)))


def _missing(known: Bench) -> str:
    wanted = (("--board", known.board), ("--model and --quant", known.bytes_per_token), ("--prefill", known.prefill))
    return ", ".join(name for name, value in wanted if value is None)
