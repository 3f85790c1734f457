"""From measured curves to replicas, queues and money: what `loadkit capacity` says of a run or of a published table.

mix.py         what arrives: tiers, shares, output lengths
judged.py      cells of a summary as measured loads that hold the objectives or do not
table.py       a published table as cells
samples.py     the requests of each cell, kept for the bootstrap
bootstrap.py   goodput again and again from resampled requests: the intervals
question.py    what is asked, and checked before anything is computed
core.py        tiers, goodput, replicas: the calculation without its words
binding.py     what stops a tier from more, and what one more measurement would buy
memory.py      running sequences by the formula and by Little's law
fleet.py       goodput and replicas with their intervals
apart.py       the same where prefill and decode run on workers of their own
figures.py     every number with its unit, formula and inputs
queues.py, costs.py   the figures of waiting and of money
variants.py    sensitivity and --what-if
answer.py      everything put together as one dict
"""
