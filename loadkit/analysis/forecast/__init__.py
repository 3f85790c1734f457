"""What has not been measured yet, from what has: the wait of one prompt, and tokens, time and money of a plan.

span.py       a value between two ends, and where it comes from
lengths.py    TTFT at any length from a run's tiers at concurrency 1
speeds.py     how fast a server is thought to be: an earlier run, a model card, or an assumption
plans.py      time of a whole plan, cell by cell
"""
