"""What every command shares: where it prints, how it reports progress, warnings and failure."""

import json
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from offmap.storage import replacing
from offmap.types import Progress as Report

console = Console()


def say(text: str) -> None:
    """Print text as it is: no markup, and no line breaks but its own."""
    console.print(escape(text), highlight=False, soft_wrap=True)


def fail(error: Exception) -> None:
    """Print why a command gives up, in one line."""
    reason = " ".join(str(error).split())
    console.print(f"[red]offmap:[/red] {escape(reason)}", highlight=False, soft_wrap=True)


def warn(text: str) -> None:
    """Print a warning, in one line."""
    reason = " ".join(text.split())
    console.print(f"[yellow]warning:[/yellow] {escape(reason)}", highlight=False, soft_wrap=True)


@contextmanager
def collected_warnings() -> Iterator[list[str]]:
    """Warnings raised inside, each once, to be printed where they are not in the way."""
    texts: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield texts
    texts += dict.fromkeys(str(warning.message) for warning in caught)


def check_writable(out: Path) -> None:
    """Refuse a target that cannot be written, before the work that would be lost."""
    folder = out.absolute().parent
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    try:
        if out.is_dir():
            raise IsADirectoryError("it is a folder")
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ValueError(
            f"--out is a file that can be written; got {out} ({error.strerror or error}). "
            f"Give another place."
        ) from error


def write_json(path: Path, content: Any) -> Path:
    """Write the numbers behind what was printed, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", "utf-8")
    return path


@contextmanager
def progress(total: int) -> Iterator[Report]:
    """A bar on a terminal, plain lines elsewhere; some data take more stages than `total`."""
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
            done = int(bar.tasks[task].completed) + 1
            bar.update(task, completed=done, total=max(total, done), description=stage)

        yield report
