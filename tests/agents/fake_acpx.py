"""Stands for the `acpx` program: prints what both sides of its session say, as that does."""

import json
import os
import sys
import time

arguments = sys.argv[1:]
with open(os.environ["RECORD"], "a") as file:
    file.write(json.dumps(arguments) + "\n")


def say(**message: object) -> None:
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


command = arguments[arguments.index("--agent") + 2 :]
if command[0] == "sessions":
    print(json.dumps({"action": "session_ensured", "acpxSessionId": "s1"}))
    sys.exit(int(os.environ.get("NEW_FAILS", "0")))
if command[0] == "set" and command[2] == "silly":
    print(json.dumps({"error": {"code": -32602, "message": "no such value"}}))
    sys.exit(1)
if command[0] == "cancel":
    open(os.environ["RECORD"] + ".cancel", "w").close()
if command[0] != "prompt":
    sys.exit()
text = sys.stdin.read()
with open(os.environ["RECORD"] + ".prompt", "w") as file:
    file.write(text)
old = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "from an earlier turn"}}
new = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "hello"}}
say(id=0, method="initialize", params={})
say(id=0, result={"protocolVersion": 1})
say(method="session/update", params={"sessionId": "s1", "update": old})
say(id=1, method="session/prompt", params={})
say(id=1, method="session/request_permission", params={})
say(id=1, result={"outcome": {"outcome": "selected"}})
say(id=1, method="fs/read_text_file", params={})
say(id=1, error={"code": -32002, "message": "not the prompt's"})
say(method="session/update", params={"sessionId": "s1", "update": new})
print("no JSON at all")
if "die" in text:
    say(id=None, error={"code": -32603, "message": "agent disconnected"})
    sys.exit(1)
while "wait" in text and not os.path.exists(os.environ["RECORD"] + ".cancel"):
    time.sleep(0.01)
say(id=1, result={"stopReason": "cancelled" if "wait" in text else "end_turn"})
