"""A program that speaks just enough ACP, and writes down how it was started."""

import json
import os
import sys

RECORD = sys.argv[1]
with open(RECORD, "a") as file:
    json.dump({"argv": sys.argv[2:], "env": dict(os.environ), "cwd": os.getcwd()}, file)
    file.write("\n")
with open(RECORD) as file:
    if len(file.readlines()) <= int(os.environ.get("DIES_FIRST", "0")):
        sys.exit("not in the mood")
print("starting with", os.environ.get("MINE_KEY"), file=sys.stderr, flush=True)
for line in sys.stdin:
    message = json.loads(line)
    with open(RECORD + ".wire", "a") as file:
        file.write(line)
    if message.get("method") == "session/new":
        option = {"id": "model", "name": "m", "type": "select", "currentValue": os.environ.get("MINE_MODEL", "none")}
        result = {"sessionId": "s", "configOptions": [{**option, "options": []}]}
    elif message.get("method") == "session/prompt":
        said = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "hello"}}
        params = {"sessionId": "s", "update": said}
        if "REFUSES" not in os.environ:
            print(json.dumps({"jsonrpc": "2.0", "method": "session/update", "params": params}))
        result = {"stopReason": "end_turn"}
        if "REFUSES" in os.environ:
            error = {"code": -32603, "message": os.environ["REFUSES"]}
            print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error}), flush=True)
            continue
    else:
        methods = [{"id": "mine-key", "name": "key"}]
        result = {"protocolVersion": 1, "agentInfo": {"name": "small", "version": "1.2"}, "authMethods": methods}
    if "id" in message:
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
