"""What every command shares: where it prints, how it reports progress."""

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from offmap.types import Progress as Report

console = Console()


@contextmanager
def progress(total: int) -> Iterator[Report]:
    """A bar on a terminal, plain lines elsewhere."""
    if not console.is_terminal:
        yield lambda stage: console.print(stage, highlight=False)
        return
    columns = (
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("starting", total=total, completed=-1)

        def report(stage: str) -> None:
            bar.update(task, advance=1, description=stage)

        yield report
