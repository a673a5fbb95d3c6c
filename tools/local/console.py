"""Progress output: one line per step with its duration; updated live in a terminal, plain lines in CI."""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TaskID, TextColumn
from rich.table import Table


class Steps:
    """Steps of one command; several may run at once, each in its own thread."""

    def __init__(self) -> None:
        self.console = Console(highlight=False, soft_wrap=True)
        self.times: list[tuple[str, float]] = []
        self._live = self.console.is_terminal
        self._progress = Progress(
            SpinnerColumn(finished_text="[green]✓"),
            TextColumn("{task.description}"),
            TextColumn("{task.fields[seconds]}", style="dim"),
            console=self.console,
        )
        self._running: dict[TaskID, float] = {}
        self._lock = threading.Lock()
        self._ended = threading.Event()

    @contextmanager
    def shown(self) -> Iterator["Steps"]:
        """Show progress until the block ends."""
        if not self._live:
            yield self
            return
        ticking = threading.Thread(target=self._tick, daemon=True)
        with self._progress:
            ticking.start()
            try:
                yield self
            finally:
                self._ended.set()

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Print the name when the step starts and its duration when it ends; a failed step gets no check mark."""
        began = time.monotonic()
        task = None
        if self._live:
            task = self._progress.add_task(name, total=1, seconds="")
            with self._lock:
                self._running[task] = began
        else:
            self.write(f"      … {name}")
        try:
            yield
            took = time.monotonic() - began
            self.times.append((name, took))
            if task is None:
                self.write(f"{took:6.1f}s ✓ {name}")
            else:
                self._progress.update(task, completed=1, seconds=f"{took:.1f} s")
        finally:
            if task is not None:
                with self._lock:
                    self._running.pop(task)

    def write(self, text: str) -> None:
        """Print a line of plain text."""
        self.console.print(text, markup=False)
        sys.stdout.flush()

    def table(self, title: str, columns: list[str], rows: list[list[str]]) -> None:
        """Print a table."""
        table = Table(*columns, title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
        for row in rows:
            table.add_row(*row)
        self.console.print(table)

    def _tick(self) -> None:
        while not self._ended.wait(0.5):
            with self._lock:
                for task, began in self._running.items():
                    self._progress.update(task, seconds=f"{time.monotonic() - began:.0f} s")
