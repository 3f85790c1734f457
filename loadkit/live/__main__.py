"""`python -m loadkit.live` in the root of the project: write again what is made from the metric table."""

from pathlib import Path

from loadkit.live.made import FILES

for name, make in FILES.items():
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).write_text(make(), encoding="utf-8")
    print(name)
