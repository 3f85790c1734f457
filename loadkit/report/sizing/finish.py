"""capacity.json, capacity.csv, capacity.md and capacity.html, written where they are wanted."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from loadkit.record.errors import FolderError, reason
from loadkit.report.finish import write
from loadkit.report.html import capacity_page
from loadkit.report.sizing import csvfile, markdown


def finish(answer: Mapping[str, Any], folder: Path) -> list[Path]:
    """Write the four files into the folder, which is made if it is not there, and say which. FolderError when it
    cannot be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FolderError(f"cannot make {folder}: {reason(error)}") from error
    texts = {
        "capacity.json": json.dumps(answer, indent=2, allow_nan=False) + "\n",
        "capacity.csv": csvfile.render(answer),
        "capacity.md": markdown.render(answer),
        "capacity.html": capacity_page.render(answer),
    }
    for name, text in texts.items():
        write(folder / name, text)
    return [folder / name for name in texts]
