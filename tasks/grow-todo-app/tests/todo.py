"""Drive the program under test on a store of its own; all steps share this file."""

import tempfile
from pathlib import Path

from checks import run, succeed

PROGRAM = ("python3", "/app/todo.py")


class Store:
    """A to-do list in a scratch folder, used through the command line only."""

    def __init__(self):
        self._folder = tempfile.TemporaryDirectory()
        self.folder = Path(self._folder.name)
        self.options = {"cwd": self.folder, "env": {"TODO_FILE": str(self.folder / "my list")}}

    def __call__(self, *args):
        """Run a command that must succeed and return the lines it prints."""
        return succeed(*PROGRAM, *args, **self.options).splitlines()

    def fail(self, *args):
        """Run a command and return (exit status, standard output, standard error)."""
        done = run(*PROGRAM, *args, **self.options)
        return done.returncode, done.stdout, done.stderr


def default_list(*args):
    """Return the lines of `list` on the default store."""
    return succeed(*PROGRAM, "list", *args).splitlines()
