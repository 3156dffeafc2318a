"""A strict SMTP server of RFC 5321, with STARTTLS and AUTH PLAIN. It keeps mails, and refuses at a test's order."""

from __future__ import annotations

import base64
import socketserver
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

#: Longest line of a mail, without its end. Source: RFC 5321, section 4.5.3.1.6.
MAX_LINE: Final = 998


class Mailbox:
    """*mails*: the accepted ones. *refuse*: replies by the verb of a command, each for one command; "": it hangs up.

    *password*: of the user `notifier`; needed to send, and accepted after STARTTLS only. *starttls*: offer it.
    """

    def __init__(self, tls: ssl.SSLContext, *, password: str, starttls: bool = True) -> None:
        self.tls = tls
        self.password = password
        self.starttls = starttls
        self.mails: list[bytes] = []
        self.recipients: list[str] = []
        self.refuse: dict[str, str] = {}
        self.clear_text = b""  #: all lines that came before TLS


class _Session(socketserver.StreamRequestHandler):
    mailbox: Mailbox

    def handle(self) -> None:
        try:
            self._reply("220 mail.example ESMTP")
            self._serve()
        except OSError:
            pass
        finally:
            self.wfile.close()
            self.rfile.close()
            self.request.close()

    def _serve(self) -> None:
        mailbox = self.mailbox
        secure = authenticated = False
        sender, recipients = "", list[str]()
        while line := self.rfile.readline(2048):
            if not secure:
                mailbox.clear_text += line
            verb, _, rest = line.decode("ascii").rstrip("\r\n").partition(" ")
            verb = verb.upper()
            ordered = mailbox.refuse.pop(verb, None)
            if ordered == "" or not line.endswith(b"\r\n"):
                return
            if ordered is not None:
                self._reply(ordered)
            elif verb == "EHLO":
                offers = ["AUTH PLAIN"] if secure else ["STARTTLS"] if mailbox.starttls else []
                self._reply(*(f"250-{offer}" for offer in ["mail.example", *offers]), "250 8BITMIME")
            elif verb == "STARTTLS" and mailbox.starttls and not secure:
                self._reply("220 go ahead")
                self.request = mailbox.tls.wrap_socket(self.request, server_side=True)
                self.rfile, self.wfile = self.request.makefile("rb"), self.request.makefile("wb", 0)
                secure = True
            elif verb == "AUTH" and secure:
                expected = base64.b64encode(f"\0notifier\0{mailbox.password}".encode()).decode()
                authenticated = rest == f"PLAIN {expected}"
                self._reply("235 welcome" if authenticated else "535 5.7.8 wrong password")
            elif verb == "MAIL" and not authenticated:
                self._reply("530 5.7.0 authentication required")
            elif verb == "MAIL":
                sender, recipients = rest, []
                self._reply("250 ok")
            elif verb == "RCPT" and sender:
                recipients.append(rest)
                self._reply("250 ok")
            elif verb == "DATA" and recipients:
                self._reply("354 go on")
                mail = self._mail()
                reply = mailbox.refuse.pop("MAILED", "250 accepted")
                if not mail or any(len(each) > MAX_LINE for each in mail.split(b"\r\n")):
                    reply = "554 a line is too long, or lacks its end"
                elif reply.startswith("250"):
                    mailbox.mails.append(mail)
                    mailbox.recipients += recipients
                if not reply.removeprefix("250").strip():
                    return
                self._reply(reply)
            elif verb in ("RSET", "NOOP"):
                self._reply("250 ok")
            elif verb == "QUIT":
                self._reply("221 bye")
                return
            else:
                self._reply("503 bad sequence of commands")

    def _mail(self) -> bytes:
        lines = list[bytes]()
        while (line := self.rfile.readline(1 << 20)) != b".\r\n":
            if not line.endswith(b"\r\n") or b"\r" in line[:-2]:
                return b""
            lines.append(line[1:] if line.startswith(b".") else line)
        return b"".join(lines)

    def _reply(self, *lines: str) -> None:
        self.wfile.write("".join(f"{line}\r\n" for line in lines).encode())


@contextmanager
def mail_server(mailbox: Mailbox) -> Iterator[int]:
    """Serve *mailbox* on 127.0.0.1. Yields: its port."""
    handler = type("Session", (_Session,), {"mailbox": mailbox})
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        server.block_on_close = False
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, name="smtp-server")
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()
