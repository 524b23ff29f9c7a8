"""From settings to a run: building, running, recording and reading it."""
