"""What tokens and requests cost: on rented hardware from what it produces, at a provider from its price list.

Money is in the currency of the prices. Price lists are per million tokens, hardware is per hour.
"""

from loadkit.capacity.inputs import InputError, not_negative, positive

MILLION = 1e6
HOUR_S = 3600.0


def per_million(per_hour: float, tokens_per_s: float) -> float:
    """Cost of a million tokens on hardware of that price per hour that makes so many per second."""
    return not_negative("price per hour", per_hour) / (positive("tokens/s", tokens_per_s) * HOUR_S) * MILLION


def per_request(per_hour: float, requests_per_s: float) -> float:
    """Cost of a request on hardware of that price per hour that completes so many per second."""
    return not_negative("price per hour", per_hour) / (positive("requests/s", requests_per_s) * HOUR_S)


def tokens_per_s_for(per_hour: float, target_per_million: float) -> float:
    """Tokens per second that make a million of them cost no more than the target."""
    return positive("price per hour", per_hour) / (positive("target cost", target_per_million) * HOUR_S) * MILLION


def listed_request(
    prompt_tokens: float,
    output_tokens: float,
    price_input: float,
    price_output: float,
    *,
    cached_tokens: float = 0.0,
    price_cached: float | None = None,
) -> float:
    """Cost of one request by a price list per million tokens; cached prompt tokens at their own price, if there is one.

    InputError where more tokens are cached than the prompt has.
    """
    if not 0 <= cached_tokens <= prompt_tokens:
        raise InputError(f"{cached_tokens:g} cached tokens of a prompt of {prompt_tokens:g}")
    cached_at = price_input if price_cached is None else not_negative("price of cached tokens", price_cached)
    fresh = (prompt_tokens - cached_tokens) * not_negative("price of prompt tokens", price_input)
    written = not_negative("output tokens", output_tokens) * not_negative("price of output tokens", price_output)
    return (fresh + cached_tokens * cached_at + written) / MILLION
