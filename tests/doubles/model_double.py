#!/usr/bin/python3
"""A double of a language model, as an OpenAI-compatible server, so that an agent works offline.

    model_double.py [PORT]

Listens on that port of 127.0.0.1, or on a free one, and prints "ready PORT". A prompt "RUN command"
makes the agent run the command, and is answered with what the agent says of it. One with the word
HOLD is answered word by word until a file named "go" is in the current directory, and "held" is
printed when that begins; any other one with "pong".
"""

import http.server
import json
import os
import sys
import time


def text_of(content: object) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(part.get("text", "") for part in content or [])


def command_to_run(asked: dict[str, object], prompt: str) -> dict[str, object] | None:
    """The call of the agent's shell that the prompt wants, in the model's own words."""
    names = [tool["function"]["name"] for tool in asked.get("tools") or []]
    shell = next((name for name in ("bash", "shell") if name in names), None)
    if shell is None or not prompt.startswith("RUN "):
        return None
    arguments = {"command": prompt.removeprefix("RUN ").strip(), "description": "run it"}
    return {"index": 0, "id": f"call_{time.time_ns()}", "type": "function",
            "function": {"name": shell, "arguments": json.dumps(arguments)}}


def chunk(delta: dict[str, object], finish: str | None = None) -> bytes:
    body = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "fake-1",
            "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}
    return b"data: " + json.dumps(body).encode() + b"\n\n"


class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, format: str, *arguments: object) -> None:
        pass

    def do_GET(self) -> None:
        self.send_json({"object": "list", "data": [{"id": "fake-1", "object": "model"}]})

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        messages = asked.get("messages", [])
        prompts = [text_of(m.get("content")) for m in messages if m.get("role") == "user"]
        prompt = prompts[-1] if prompts else ""
        # An agent asks for a title of the conversation, too, and gives no tools for that.
        hold = "HOLD" in prompt and bool(asked.get("tools"))
        if not asked.get("stream"):
            self.send_json({"id": "c", "object": "chat.completion", "created": 1, "model": "fake-1",
                            "choices": [{"index": 0, "finish_reason": "stop",
                                         "message": {"role": "assistant", "content": "pong"}}]})
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        done = messages and messages[-1].get("role") == "tool"
        call = None if done else command_to_run(asked, prompt)
        if call is not None:
            self.wfile.write(chunk({"role": "assistant", "content": None, "tool_calls": [call]}))
            self.wfile.write(chunk({}, "tool_calls") + b"data: [DONE]\n\n")
            return
        word = "it says: " + text_of(messages[-1].get("content")) if done else "pong"
        self.wfile.write(chunk({"role": "assistant", "content": word}))
        if hold:
            print("held", flush=True)
        # Nothing tells of a new file, and the agent shall see that the answer goes on.
        while hold and not os.path.exists("go"):
            self.wfile.write(chunk({"content": " and"}))
            time.sleep(0.2)
        self.wfile.write(chunk({}, "stop") + b"data: [DONE]\n\n")

    def send_json(self, value: object) -> None:
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


server = http.server.ThreadingHTTPServer(("127.0.0.1", int((sys.argv + ["0"])[1])), Handler)
print(f"ready {server.server_port}", flush=True)
server.serve_forever()
