"""Following a run, or a whole comparison, that another process makes."""

from prowd.console.watch.loop import watch

__all__ = ["watch"]
