"""`offmap report`: a page about a fitted model."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from offmap.cli.console import check_writable, console, progress

_STAGES = 2


@dataclass(frozen=True)
class Report:
    """Write one HTML file about a fitted model: what it found, how far to trust it, to try out.

    Example: offmap report robot.offmap --out page.html
    """

    model: Annotated[Path, tyro.conf.Positional]
    """Model file, as `offmap fit` writes it."""
    out: Path = Path("report.html")
    """Where to write the page."""
    title: str | None = None
    """Heading; the name of the model file if left out."""

    def run(self) -> None:
        """Write the page."""
        from offmap.model import load
        from offmap.report import write

        check_writable(self.out)
        model = load(self.model)
        self.out.parent.mkdir(parents=True, exist_ok=True)
        with progress(_STAGES) as report:
            path = write(model, self.out, title=self.title or self.model.stem, progress=report)
        size = path.stat().st_size / 1e6
        console.print(f"Page: {path} ({size:.1f} MB, opens without a network)", highlight=False)
