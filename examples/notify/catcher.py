"""Prints the notifications that it receives: a stand-in for a chat. Run: python -m examples.notify.catcher [PORT]"""

from __future__ import annotations

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Catcher(BaseHTTPRequestHandler):
    """Receives Alertmanager's webhooks, version 4."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        payload = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        print(f"{payload['receiver']}: {payload['status']} {payload['groupKey']}")
        for alert in payload["alerts"]:
            annotations = alert["annotations"]
            print(f"  {alert['status']}: {annotations['summary']} x{annotations['count']}: {annotations['message']}")
        sys.stdout.flush()
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Print notifications only."""


if __name__ == "__main__":
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 8099
    ThreadingHTTPServer(("127.0.0.1", port), Catcher).serve_forever()
