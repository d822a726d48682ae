"""The outbox: files through which roles leave each other messages, put before the recipient's next prompt."""

from __future__ import annotations

import base64
import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from pytest_benchflow.core.text import one_line, printable
from pytest_benchflow.sandboxes import exec_checked

if TYPE_CHECKING:
    from pytest_benchflow.rollout.recorder import Recorder
    from pytest_benchflow.rollout.scenes import PlannedTurn
    from pytest_benchflow.sandboxes import Sandbox


class Outbox:
    """The messages between the roles of a rollout; scenes without an outbox are left as they are."""

    def __init__(self, sandbox: Sandbox, recorder: Recorder) -> None:
        self._sandbox = sandbox
        self._recorder = recorder
        self._mailbox = Mailbox()
        self._scene: int | None = None

    async def deliver(self, turn: PlannedTurn) -> str:
        """Return the prompt of a turn after the messages to its role; a new scene starts without messages."""
        if not turn.has_outbox:
            return turn.prompt
        if turn.scene_index != self._scene:
            self._scene, self._mailbox = turn.scene_index, Mailbox()
        await prepare_outbox(self._sandbox)
        return with_messages(turn.prompt, self._mailbox.take(turn.role.name))

    async def collect(self, turn: PlannedTurn, user: str | int | None) -> None:
        """Collect the messages that a turn wrote; malformed files become notes."""
        if not turn.has_outbox:
            return
        messages, problems = await collect_outbox(
            self._sandbox,
            user=user,
            scene=turn.scene.name,
            turn=turn.turn_index,
            sender=turn.role.name,
            roles=[role.name for role in turn.scene.roles],
        )
        self._mailbox.add(messages)
        self._recorder.notes += problems
        for message in messages:
            self._recorder.append_line("scene_messages.jsonl", asdict(message))


OUTBOX = "/app/.outbox"
MAX_FILES = 100
MAX_BYTES = 65536
_TIMEOUT_SEC = 30.0

# The umask sets the mode: a chmod would follow a link that a process puts there in between.
_PREPARE = f"rm -rf -- {OUTBOX} && umask 0 && mkdir -p {OUTBOX}"

# Read as the agent's user: through a link it can read only what the agent could read anyway.
_COLLECT = f"""
[ -L {OUTBOX} ] && {{ echo 'was replaced by a link' >&2; exit 1; }}
cd {OUTBOX} 2>/dev/null || {{ echo 'was removed' >&2; exit 1; }}
n=0
for f in *.json; do
  if [ -f "$f" ] && [ ! -L "$f" ] && [ "$n" -lt {MAX_FILES} ]; then
    n=$((n + 1))
    printf '%s %s\\n' "$(printf %s "$f" | base64 | tr -d '\\n')" \
      "$(head -c {MAX_BYTES + 1} -- "$f" | base64 | tr -d '\\n')"
  fi
  rm -rf -- "$f"
done
"""


@dataclass(frozen=True, slots=True)
class Message:
    """What one role tells another; the line of `scene_messages.jsonl`."""

    scene: str
    turn: int
    sender: str
    recipient: str
    content: str


@dataclass(frozen=True, slots=True)
class OutboxFile:
    """A file that an agent wrote, truncated if it is too long."""

    name: str
    content: bytes


async def prepare_outbox(sandbox: Sandbox) -> None:
    """Make an empty outbox before a turn; every role may write to it, one that may only read the workspace too."""
    await exec_checked(sandbox, _PREPARE, f"prepare {OUTBOX}", timeout_sec=_TIMEOUT_SEC)


async def collect_outbox(
    sandbox: Sandbox, *, user: str | int | None, scene: str, turn: int, sender: str, roles: Sequence[str]
) -> tuple[list[Message], list[str]]:
    """Collect and remove the files that a turn wrote; return the messages, and the problems of malformed files."""
    try:
        done = await sandbox.exec(_COLLECT, user=user, timeout_sec=_TIMEOUT_SEC)
    except TimeoutError:
        return [], [f"{OUTBOX} of {sender} could not be read within {_TIMEOUT_SEC:g} s"]
    if done.return_code:
        return [], [f"{OUTBOX} of {sender} {one_line(done.stderr) or 'could not be read'}"]
    messages: list[Message] = []
    problems: list[str] = []
    for file in unpack(done.stdout):
        read = read_message(file, scene=scene, turn=turn, sender=sender, roles=roles)
        if isinstance(read, Message):
            messages.append(read)
        else:
            problems.append(read)
    return messages, problems


def unpack(output: str) -> list[OutboxFile]:
    """Return the files that the collecting command printed."""
    pairs = (line.split(" ") for line in output.splitlines())
    return [
        OutboxFile(base64.b64decode(name).decode("utf-8", "replace"), base64.b64decode(content))
        for name, content in pairs
    ]


def read_message(file: OutboxFile, *, scene: str, turn: int, sender: str, roles: Sequence[str]) -> Message | str:
    """Return the message in a file, or what is wrong with it."""
    where = f"{OUTBOX}/{one_line(file.name)} of {sender}"
    if len(file.content) > MAX_BYTES:
        return f"{where} has more than {MAX_BYTES} bytes"
    try:
        data: object = json.loads(file.content)
    except (ValueError, RecursionError):
        return f"{where} is not JSON"
    if not isinstance(data, dict):
        return f'{where} is not an object {{"to": …, "content": …}}'
    recipient, content = data.get("to", file.name.removesuffix(".json")), data.get("content")
    if not isinstance(content, str) or not content.strip():
        return f"{where} has no text in content"
    if not isinstance(recipient, str) or recipient not in roles:
        return f"{where} is for {one_line(str(recipient))!r}, the scene has {', '.join(roles)}"
    return Message(scene, turn, sender, recipient, printable(content))


class Mailbox:
    """Keeps the messages of a scene until the recipient's next turn."""

    def __init__(self) -> None:
        self._waiting: defaultdict[str, list[Message]] = defaultdict(list)

    def add(self, messages: Iterable[Message]) -> None:
        """Keep messages for their recipients."""
        for message in messages:
            self._waiting[message.recipient].append(message)

    def take(self, role: str) -> list[Message]:
        """Return and remove the messages for a role."""
        return self._waiting.pop(role, [])

    @property
    def undelivered(self) -> list[Message]:
        """The messages that no recipient has received yet."""
        return [message for waiting in self._waiting.values() for message in waiting]


def with_messages(prompt: str, messages: Sequence[Message]) -> str:
    """Return a prompt with messages before it."""
    if not messages:
        return prompt
    texts = "\n\n".join(f"**From {message.sender}:**\n{message.content}" for message in messages)
    return f"Messages from other agents:\n\n{texts}\n\n---\n\n{prompt}"
