"""report.html: one file with charts and tables that opens anywhere, offline.

page.py       everything put together
overview.py   what stands first: whether the numbers can be used, and what they say in one look
tables.py     tables for people, and every number with all its digits
plan.py       what was planned, of whom, with which versions
samples.py    many samples as the few marks a chart can show
scales.py     what the charts share: axes, colours, layers
charts.py     TTFT and unit price against context, the maps of tier and concurrency
spread.py     distributions and outcomes of each cell
timeline.py   the run second by second: visits, and the health of the load generator
shell.py      what both pages share; page.html, capacity.html, macros.html, style.css, page.js: the templates

Charts are Vega-Lite specifications: plain dicts. A colour in them is the name of a variable of style.css after a `$`,
so that page.js can draw them for a light or a dark screen. No text of a server goes into a chart.
"""
