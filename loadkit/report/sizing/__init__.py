"""A capacity answer for people: terminal, Markdown, CSV; the page with charts is `report.html.capacity_page`.

rows.py      the tables, as texts that every form of the answer shares
"""
