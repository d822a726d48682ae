"""Messages between the roles of a rollout: collected after each turn, put before the recipient's next prompt."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

from pytest_benchflow.rollout.outbox import Mailbox, collect_outbox, prepare_outbox, with_messages

if TYPE_CHECKING:
    from pytest_benchflow.rollout.record import Record
    from pytest_benchflow.rollout.scenes import PlannedTurn
    from pytest_benchflow.sandboxes import Sandbox


class Letters:
    """Does nothing for scenes that did not ask for an outbox."""

    def __init__(self, sandbox: Sandbox, record: Record) -> None:
        self._sandbox = sandbox
        self._record = record
        self._mailbox = Mailbox()
        self._scene: int | None = None

    async def deliver(self, turn: PlannedTurn) -> str:
        """Return the prompt of a turn with what others have written to its role; a new scene begins with none."""
        if not turn.scene.outbox:
            return turn.prompt
        if turn.scene_index != self._scene:
            self._scene, self._mailbox = turn.scene_index, Mailbox()
        await prepare_outbox(self._sandbox)
        return with_messages(turn.prompt, self._mailbox.take(turn.role.name))

    async def collect(self, turn: PlannedTurn, user: str | int | None) -> None:
        """Take out what a turn left; malformed files are noted, not fatal."""
        if not turn.scene.outbox:
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
        self._record.notes += problems
        for message in messages:
            self._record.append_line("scene_messages.jsonl", json.dumps(asdict(message), ensure_ascii=False))
