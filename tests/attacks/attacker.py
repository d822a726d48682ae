"""An ACP agent that does what its prompt's script says, in the sandbox and as the agent's user. Standard library only.

A prompt ends with `#!bash`, `#!python` or `#!acp` and a script; the last kind runs in this process and speaks ACP.
"""

import json
import os
import subprocess
import sys
import tempfile

LIMIT_SEC = 30


def send(**message: object) -> None:
    sys.stdout.buffer.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
    sys.stdout.buffer.flush()


def update(kind: str, /, **rest: object) -> None:
    params = {"sessionId": "s", "update": {"sessionUpdate": kind, **rest}}
    send(method="session/update", params=params)


def say(text: str) -> None:
    update("agent_message_chunk", content={"type": "text", "text": text})


def read() -> dict:
    line = sys.stdin.readline()
    if not line:
        sys.exit(0)
    return json.loads(line)


def ask(method: str, params: object) -> dict:
    """Ask the client for something and return its whole answer."""
    send(id=1, method=method, params=params)
    while (message := read()).get("id") != 1:
        pass
    return message


def run(script: str) -> str:
    kind, _, text = script.partition("\n")
    if kind == "#!acp":
        names = {"send": send, "update": update, "say": say, "ask": ask, "stop": {}}
        exec(text, names)
        return names["stop"]
    argv = [sys.executable, "-c", text] if kind == "#!python" else ["bash", "-c", text]
    with tempfile.TemporaryFile() as output:
        try:
            done = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=output, stderr=output, timeout=LIMIT_SEC)
            status = done.returncode
        except (subprocess.TimeoutExpired, OSError) as error:
            status = error
        output.seek(0)
        say(f"status {status}\n{output.read(8000).decode(errors='replace')}")
    return {}


def main() -> None:
    while True:
        request = read()
        method = request.get("method")
        result: object = {}
        if method == "initialize":
            result = {"protocolVersion": 1, "agentInfo": {"name": "attacker", "version": "1"}}
        elif method == "session/new":
            result = {"sessionId": "s"}
        elif method == "session/prompt":
            text = "".join(block.get("text", "") for block in request["params"]["prompt"])
            more = run(text[text.index("#!") :]) if "#!" in text else {}
            result = {"stopReason": "end_turn", **more}
        if "id" in request:
            send(id=request["id"], result=result)


os.umask(0o022)
main()
