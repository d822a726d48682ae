"""`acpx/NAME`: an agent driven by the `acpx` client instead of by us; all else stays as its manifest says.

`acpx` holds the agent in a process that outlives each command, so a second prompt knows of the first. All its commands
run below one shell in the sandbox: when that is killed, nothing of it is left.
"""

from __future__ import annotations

import asyncio
import json
import shlex
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pytest_benchflow.agents.acp_agent import AcpAgent, write_home_files
from pytest_benchflow.agents.base import AgentContext
from pytest_benchflow.agents.manifest import AgentManifest
from pytest_benchflow.agents.template import render
from pytest_benchflow.core.types import Json
from pytest_benchflow.providers import HomeFile

if TYPE_CHECKING:
    from pytest_benchflow.agents.bundles.store import BundleStore
    from pytest_benchflow.sandboxes import Process


VERSION = "0.19.1"
SESSION = "benchflow"
#: Runs every line of its input in the background, so that one command can stop another.
DRIVER = ("bash", "-c", 'while IFS= read -r command; do eval "$command" </dev/null & done; wait')
_DONE = "acpx_done"
#: How requests of a client begin; any other in the output is one of the agent's.
_OF_CLIENT = ("initialize", "authenticate", "session/")
_METHOD_NOT_FOUND = -32601
_FAILED = -32603
_LONGEST_LINE = 64 << 20

Message = dict[str, Json]


@dataclass(frozen=True, slots=True)
class Offer:
    """What the session is told that it may choose."""

    mode: str | None = None
    effort_option: str | None = None


class AcpxBridge:
    """Implements `Process`: reads and writes the protocol, and drives `acpx` underneath."""

    def __init__(self, driver: Process, acpx: Sequence[str], offer: Offer) -> None:
        self._driver = driver
        self._acpx = [*acpx]
        self._offer = offer
        self._output: asyncio.Queue[bytes] = asyncio.Queue()
        self._rest = b""
        self._free = asyncio.Lock()
        self._done: asyncio.Future[int] | None = None
        self._listener: Callable[[Message], None] = _ignore
        self._tasks: set[asyncio.Task[None]] = set()
        self._answers = {
            "initialize": self._initialize,
            "session/new": self._new,
            "session/set_mode": self._set_mode,
            "session/set_config_option": self._set_option,
            "session/prompt": self._prompt,
            "session/cancel": self._cancel,
        }
        self._start(self._pump())

    async def write(self, data: bytes) -> None:
        """Take messages of the session, one per line."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            message = json.loads(line) if line.strip() else {}
            if isinstance(message, dict) and isinstance(message.get("method"), str):
                self._start(self._answer(message))

    async def close_stdin(self) -> None:
        """End the shell when its last command has ended."""
        await self._driver.close_stdin()

    async def read(self, n: int = 65536) -> bytes:
        """Return the next message for the session."""
        return await self._output.get()

    async def read_stderr(self, n: int = 65536) -> bytes:
        """Return what acpx and the agent print beside it."""
        return await self._driver.read_stderr(n)

    async def wait(self) -> int:
        """Wait for the shell."""
        return await self._driver.wait()

    async def kill(self) -> None:
        """Kill acpx, the agent and everything they started; idempotent."""
        await self._driver.kill()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _start(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _send(self, message: Message) -> None:
        self._output.put_nowait(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    async def _answer(self, message: Message) -> None:
        method, params = str(message["method"]), message.get("params")
        work = self._answers.get(method)
        answer: Message = {"error": {"code": _METHOD_NOT_FOUND, "message": f"{method} is not known here"}}
        if work is not None:
            answer = await work(params if isinstance(params, dict) else {})
        if "id" in message:
            self._send({"id": message["id"], **answer})

    async def _initialize(self, params: Message) -> Message:
        return {"result": {"protocolVersion": 1, "agentInfo": {"name": "acpx", "version": VERSION}, "authMethods": []}}

    async def _new(self, params: Message) -> Message:
        status, messages = await self._command(["sessions", "new", "--name", SESSION])
        made = next((message.get("acpxSessionId") for message in messages if "acpxSessionId" in message), None)
        if status or made is None:
            return _failure("sessions new", status, messages)
        result: Message = {"sessionId": made}
        if self._offer.mode is not None:
            modes: list[Json] = [{"id": self._offer.mode, "name": self._offer.mode}]
            result["modes"] = {"currentModeId": "", "availableModes": modes}
        if self._offer.effort_option is not None:
            result["configOptions"] = [_option(self._offer.effort_option, None)]
        return {"result": result}

    async def _set_mode(self, params: Message) -> Message:
        """Ask for the mode; an agent that has none like it goes on in its own, and acpx approves what it asks."""
        await self._command(["set-mode", str(params.get("modeId")), "-s", SESSION])
        return {"result": {}}

    async def _set_option(self, params: Message) -> Message:
        name, value = str(params.get("configId")), str(params.get("value"))
        status, messages = await self._command(["set", name, value, "-s", SESSION])
        return (
            _failure(f"set {name}", status, messages)
            if status
            else {"result": {"configOptions": [_option(name, value)]}}
        )

    async def _cancel(self, params: Message) -> Message:
        """Stop the prompt that runs; what it has to say to that comes from its own command."""
        command = shlex.join([*self._acpx, "cancel", "-s", SESSION])
        await self._driver.write(f"{command} >/dev/null\n".encode())
        return {}

    async def _prompt(self, params: Message) -> Message:
        """Send a prompt, pass on what the agent says, and return its answer."""
        turn = _Turn(self._send)
        blocks = params.get("prompt")
        texts = [block.get("text") for block in blocks if isinstance(block, dict)] if isinstance(blocks, list) else []
        status, _ = await self._command(["prompt", "-s", SESSION, "-f", "-"], "\n".join(map(str, texts)), turn.take)
        return turn.answer or _failure("prompt", status, turn.errors)

    async def _command(
        self, arguments: Sequence[str], stdin: str | None = None, listener: Callable[[Message], None] | None = None
    ) -> tuple[int, list[Message]]:
        """Run one command of acpx at a time; return its status and what it said, unless a listener took that."""
        messages: list[Message] = []
        command = shlex.join([*self._acpx, *arguments]) + ("" if stdin is None else f" <<<{_ansi_quoted(stdin)}")
        async with self._free:
            done = self._done = asyncio.get_running_loop().create_future()
            self._listener = listener or messages.append
            await self._driver.write(f"{command}; printf '\\n{{\"{_DONE}\":%d}}\\n' $?\n".encode())
            return await done, messages

    async def _pump(self) -> None:
        """Take what the shell prints to the command that waits for it; its end is the end of the session."""
        rest = b""
        while data := await self._driver.read():
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                self._line(line)
            if len(rest) > _LONGEST_LINE:
                rest = b""
        self._output.put_nowait(b"")

    def _line(self, line: bytes) -> None:
        try:
            message = json.loads(line)
        except ValueError:
            return
        if not isinstance(message, dict):
            return
        if _DONE not in message:
            self._listener(message)
        elif self._done is not None and not self._done.done():
            self._done.set_result(int(message[_DONE]))


class _Turn:
    """Tells apart what both sides say in the output of a prompt: acpx prints all of it."""

    def __init__(self, forward: Callable[[Message], None]) -> None:
        self._forward = forward
        self._asked_by_agent: set[str] = set()
        self._prompt: str | None = None
        self.errors: list[Message] = []
        self.answer: Message | None = None

    def take(self, message: Message) -> None:
        """Pass on what the agent tells, keep its answer to the prompt, and leave the rest to acpx."""
        method, number = message.get("method"), json.dumps(message.get("id"))
        if isinstance(method, str) and "id" not in message:
            # Before the prompt an agent that was started again may repeat what it said in earlier ones.
            if self._prompt is not None:
                self._forward({"method": method, "params": message.get("params")})
        elif method == "session/prompt":
            self._prompt = number
        elif isinstance(method, str):
            if method == "session/request_permission" or not method.startswith(_OF_CLIENT):
                self._asked_by_agent.add(number)
        elif number in self._asked_by_agent:
            self._asked_by_agent.discard(number)
        elif number == self._prompt:
            key = "result" if "result" in message else "error"
            self.answer = {key: message.get(key)}
        elif "error" in message:
            self.errors.append(message)


def _ignore(message: Message) -> None:
    pass


def _option(name: str, value: str | None) -> Json:
    return {"id": name, "name": name, "type": "select", "currentValue": value, "options": []}


def _failure(command: str, status: int, messages: list[Message]) -> Message:
    errors = [error for message in messages if isinstance(error := message.get("error"), dict)]
    text = str(errors[-1].get("message")) if errors else "it said nothing"
    return {"error": {"code": _FAILED, "message": f"acpx {command} ended with status {status}: {text}"}}


def _ansi_quoted(text: str) -> str:
    """Return a text as one word of bash on one line."""
    plain = text.replace("\\", "\\\\").replace("'", "\\'")
    return "$'" + "".join(c if c.isprintable() else _escaped(c) for c in plain) + "'"


def _escaped(character: str) -> str:
    return "".join(f"\\x{byte:02x}" for byte in character.encode("utf-8", "replace"))


_NODE = "22.23.3"
_OLDEST_NODE = 22
_SERVERS = ".acpx/servers.json"


def behind_acpx(manifest: AgentManifest) -> AgentManifest:
    """Return the manifest of an agent that comes with acpx; a name of its own keeps its bundle apart."""
    install = manifest.install
    old = install.node is None or int(install.node.partition(".")[0]) < _OLDEST_NODE
    own = manifest.programs if install.npm or install.pip else ()
    return replace(
        manifest,
        name=f"acpx/{manifest.name}",
        aliases=(),
        # Each session starts the agent more than once.
        handshake_timeout_sec=3 * manifest.handshake_timeout_sec,
        install=replace(
            install, node=_NODE if old else install.node, npm=(*install.npm, f"acpx@{VERSION}"), programs=(*own, "acpx")
        ),
    )


class AcpxAgent(AcpAgent):
    """An agent behind acpx."""

    def __init__(self, manifest: AgentManifest, store: BundleStore | None = None) -> None:
        super().__init__(behind_acpx(manifest), store)

    async def install(self, context: AgentContext) -> None:
        """Make its programs ready, write its files and what acpx has to know."""
        await super().install(context)
        if servers := self._plan(context).mcp_servers:
            content = render({"mcpServers": [*servers]}, "json")
            await write_home_files(context, [HomeFile(_SERVERS, content)], self.name)

    async def _open(self, argv: Sequence[str], context: AgentContext, env: Mapping[str, str]) -> Process:
        """Start the shell that acpx runs below."""
        driver = await context.sandbox.open_process(DRIVER, user=context.user, cwd=context.cwd, env=env)
        effort = self.manifest.effort
        asks = context.request.effort is not None and effort is not None and effort.by == "config-option"
        option = (effort.option or "effort") if effort is not None and asks else None
        return AcpxBridge(driver, self._acpx(argv, context), Offer(self.manifest.mode, option))

    def _acpx(self, argv: Sequence[str], context: AgentContext) -> list[str]:
        """Return the command with what every call of it needs."""
        words = [self.installation.program("acpx", context), "--format", "json", "--json-strict", "--approve-all"]
        words += ["--no-fs", "--no-terminal", "--ttl", "0", "--cwd", context.cwd]
        plan = self._plan(context)
        if plan.mcp_servers:
            words += ["--mcp-config", f"{context.home}/{_SERVERS}"]
        if plan.model is not None and plan.model_by != "launch":
            words += ["--model", plan.model]
        return [*words, "--agent", shlex.join(argv)]
