"""An HTTP worker with the standard library alone: verify, start, send heartbeats, complete.

``tenure endpoints create mail --queue default --type mail --url http://127.0.0.1:8080/`` prints the
secret; then ``ENDPOINT_SECRET=whsec_… python http_worker.py`` works on what is pushed.
"""

import base64
import hashlib
import hmac
import json
import os
import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

KEY = base64.b64decode(os.environ["ENDPOINT_SECRET"].removeprefix("whsec_"))
ORIGIN = os.environ.get("TENURE_ORIGIN", "http://127.0.0.1:7300")


def is_ours(headers: Any, body: bytes) -> bool:
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    mine = "v1," + base64.b64encode(hmac.digest(KEY, signed, hashlib.sha256)).decode()
    theirs = headers["webhook-signature"].split()
    is_signed = any(hmac.compare_digest(mine, each) for each in theirs)
    return is_signed and abs(time.time() - int(headers["webhook-timestamp"])) < 300


def call(task: Any, verb: str, **fields: object) -> Any:
    body = json.dumps({"attempt": task["attempt"], "workerId": f"pid-{os.getpid()}", **fields})
    headers = {"authorization": f"Bearer {task['taskToken']}", "content-type": "application/json"}
    url = f"{ORIGIN}/v1/tasks/{task['taskId']}/{verb}"
    request = urllib.request.Request(url, body.encode(), headers)
    with urllib.request.urlopen(request, timeout=10) as answer:
        said = json.load(answer)
    task["taskToken"] = said.get("taskToken", task["taskToken"])
    return said


def work(task: Any) -> Any:
    call(task, "started")
    for percent in (0, 50, 100):
        if call(task, "heartbeat", progressPct=percent)["shouldCancel"]:
            return call(task, "completed", outcome="CANCELLED", cancelledDuringPhase="sending")
    return call(task, "completed", outcome="SUCCEEDED", output={"sent": task.get("input")})


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.send_response(202 if is_ours(self.headers, body) else 400)
        self.end_headers()
        if is_ours(self.headers, body) and "taskToken" in (task := json.loads(body)):
            threading.Thread(target=work, args=(task,)).start()


if __name__ == "__main__":
    address = ("127.0.0.1", int(os.environ.get("PORT", "8080")))
    ThreadingHTTPServer(address, Handler).serve_forever()
