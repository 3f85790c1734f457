"""Token counting, fillers, and prompts of an exact length as ready bytes."""

from loadkit.prompt.filler import FILLERS, Filler, filler
from loadkit.prompt.prompt import Prompt, PromptKey
from loadkit.prompt.tier import TierText, build_tier, build_tiers

__all__ = ["FILLERS", "Filler", "Prompt", "PromptKey", "TierText", "build_tier", "build_tiers", "filler"]
