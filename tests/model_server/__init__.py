"""A model provider on loopback that answers from scripts, so that real agents run without the internet.

    with ModelServer() as server:
        server.script("Make hello.txt", Write("/app/hello.txt", "hello\\n"), Say("Done."))
        ...  # point an agent at server.url, let it work
        assert server.calls[-1].saw("hello.txt")

It speaks the wire protocols of Anthropic (messages), OpenAI (responses, chat completions) and Gemini (generateContent),
streaming or not. `python -m model_server --script FILE` runs it as a process; `script_file` describes the file.
"""

from model_server.conversation import Conversation, Tool, Turn
from model_server.replies import As, Call, Fail, Garbage, Reply, Reset, Run, Say, Slow, Stall, Together, Verbatim, Write
from model_server.request import Request
from model_server.scripts import Script
from model_server.server import ModelServer
from model_server.wire import Usage

__all__ = [
    "As",
    "Call",
    "Conversation",
    "Fail",
    "Garbage",
    "ModelServer",
    "Reply",
    "Request",
    "Reset",
    "Run",
    "Say",
    "Script",
    "Slow",
    "Stall",
    "Together",
    "Tool",
    "Turn",
    "Usage",
    "Verbatim",
    "Write",
]
