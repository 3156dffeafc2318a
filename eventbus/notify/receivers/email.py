"""`email_configs`: one thread of mails for each group, as text and HTML, over SMTP with TLS.

Mails of a group have one subject, and refer to its first mail, so that mail programs show them as a thread. A repeated
message has the same Message-ID. The address guard of HTTP receivers does not apply: the smarthost comes from the
rules file, and is often a private address.
"""

from __future__ import annotations

import html
import smtplib
import ssl
from collections.abc import Mapping
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import formatdate, getaddresses
from typing import Final

import msgspec

from eventbus.errors import ConfigError, EventRejected, SinkUnreachable
from eventbus.notify.fields import Secret, secret_of
from eventbus.notify.receivers import summary
from eventbus.notify.receivers.contract import Global, IntegrationConfig, Notification, NotifiedAlert, Opening, Status
from eventbus.notify.receivers.http import TlsConfig
from eventbus.util.log import log

#: Longest wait for each answer of the server, seconds.
TIMEOUT_S: Final = 10.0
MAX_SUBJECT: Final = 200
IMPLICIT_TLS_PORT: Final = 465


class EmailConfig(IntegrationConfig, frozen=True, kw_only=True):
    """One entry of `email_configs`. *smarthost*: `host:port`; port 465 speaks TLS from the start."""

    to: str
    from_: str = msgspec.field(default="", name="from")
    smarthost: str = ""
    hello: str = ""
    auth_username: str = ""
    auth_password: Secret | None = None
    auth_password_file: str = ""
    require_tls: bool | None = None
    tls_config: TlsConfig = TlsConfig()
    send_resolved: bool = False

    def with_defaults(self, defaults: Global) -> EmailConfig:
        """Return a copy with the defaults of the file."""
        own_password = self.auth_password or self.auth_password_file
        return msgspec.structs.replace(
            self,
            from_=self.from_ or defaults.smtp_from,
            smarthost=self.smarthost or defaults.smtp_smarthost,
            hello=self.hello or defaults.smtp_hello,
            auth_username=self.auth_username or defaults.smtp_auth_username,
            auth_password=self.auth_password if own_password else defaults.smtp_auth_password,
            auth_password_file=self.auth_password_file if own_password else defaults.smtp_auth_password_file,
            require_tls=defaults.smtp_require_tls if self.require_tls is None else self.require_tls,
        )

    def check(self) -> None:
        host, _, port = self.smarthost.rpartition(":")
        if not host or not port.isdigit() or not 0 < int(port) < 65536:
            raise ValueError("smarthost: must be host:port, here or as smtp_smarthost in global")
        for field, text in (("to", self.to), ("from", self.from_)):
            addresses = [address for _, address in getaddresses([text])]
            if not addresses or any("@" not in address or not address.isprintable() for address in addresses):
                raise ValueError(f"{field}: must be a mail address")
        if self.auth_username and not self.require_tls and int(port) != IMPLICIT_TLS_PORT:
            raise ValueError("require_tls: false would send the password in the clear")

    def open(self, opening: Opening) -> EmailReceiver:
        return EmailReceiver(self, opening)


class EmailReceiver:
    """Opens a connection for each mail."""

    def __init__(self, config: EmailConfig, opening: Opening) -> None:
        self._config = config
        self._domain = f"{opening.bus_id or 'bus'}.eventbus.invalid"
        tls = config.tls_config
        try:
            self._tls = ssl.create_default_context(cafile=tls.ca_file or None)
            if tls.cert_file:
                self._tls.load_cert_chain(tls.cert_file, tls.key_file or None)
        except OSError as error:
            raise ConfigError(f"tls_config cannot be used: {error}") from error

    def send(self, notification: Notification) -> Mapping[str, str]:
        handle = dict(notification.handle) or {
            "first": f"<{notification.group}@{self._domain}>",
            "subject": summary.cut(summary.subject(notification), MAX_SUBJECT),
        }
        self._deliver(self._mail(notification, handle))
        return handle

    def close(self) -> None:
        pass

    def _mail(self, notification: Notification, handle: Mapping[str, str]) -> EmailMessage:
        mail = EmailMessage(policy=SMTP)
        first = not notification.handle
        mail["Subject"] = handle["subject"] if first else f"Re: {handle['subject']}"
        mail["From"] = self._config.from_
        mail["To"] = self._config.to
        mail["Date"] = formatdate()
        mail["Auto-Submitted"] = "auto-generated"
        mail["Message-ID"] = (
            handle["first"] if first else f"<{notification.group}.{notification.number}@{self._domain}>"
        )
        if not first:
            mail["In-Reply-To"] = mail["References"] = handle["first"]
        mail.set_content("\n".join([summary.title(notification), "", *summary.lines(notification)]))
        mail.add_alternative(_html(notification), subtype="html")
        return mail

    def _deliver(self, mail: EmailMessage) -> None:
        """Raises: SinkUnreachable: no server, no login, or a temporary refusal. EventRejected: it refuses this mail."""
        try:
            with self._connect() as server:
                refused = server.send_message(mail)
        except smtplib.SMTPRecipientsRefused as error:
            replies = ", ".join(f"{address}: {code}" for address, (code, _) in error.recipients.items())
            if any(code < 500 for code, _ in error.recipients.values()):
                raise SinkUnreachable(f"all recipients were refused for now: {replies}") from error
            raise EventRejected(f"all recipients were refused: {replies}") from error
        except smtplib.SMTPAuthenticationError as error:
            raise SinkUnreachable(f"{self._config.smarthost} refused the login: {_reply(error)}") from error
        except (smtplib.SMTPSenderRefused, smtplib.SMTPDataError) as error:
            kind = EventRejected if error.smtp_code >= 500 else SinkUnreachable
            raise kind(f"{self._config.smarthost} refused the mail: {_reply(error)}") from error
        except (smtplib.SMTPException, OSError) as error:
            raise SinkUnreachable(f"{self._config.smarthost}: {error}") from error
        if refused:
            log.warning("mail: some recipients were refused: %s", ", ".join(sorted(refused)))

    def _connect(self) -> smtplib.SMTP:
        config = self._config
        host, _, port = config.smarthost.rpartition(":")
        host = host.strip("[]")
        if int(port) == IMPLICIT_TLS_PORT:
            server: smtplib.SMTP = smtplib.SMTP_SSL(host, int(port), config.hello, timeout=TIMEOUT_S, context=self._tls)
        else:
            server = smtplib.SMTP(host, int(port), config.hello, timeout=TIMEOUT_S)
        try:
            if int(port) != IMPLICIT_TLS_PORT and (config.require_tls or server.has_extn("starttls")):
                server.starttls(context=self._tls)  # raises if the server does not offer it
            if config.auth_username:
                password = secret_of("auth_password", config.auth_password, config.auth_password_file)
                if not password.isascii():  # smtplib's error would quote it
                    raise SinkUnreachable("auth_password: must be ASCII")
                server.login(config.auth_username, password)
        except BaseException:
            server.close()
            raise
        return server


def _reply(error: smtplib.SMTPResponseException) -> str:
    text = error.smtp_error.decode("utf-8", "replace") if isinstance(error.smtp_error, bytes) else error.smtp_error
    return f"{error.smtp_code} {summary.cut(summary.one_line(text), 200)}"


def _html(notification: Notification) -> str:
    rows = "".join(_row(alert) for alert in notification.alerts[: summary.MAX_ALERTS])
    left_out = len(notification.alerts) - summary.MAX_ALERTS
    more = f"<p>and {left_out} more</p>" if left_out > 0 else ""
    return (
        f"<!doctype html><html><body><h3>{html.escape(summary.title(notification))}</h3>"
        f'<table cellpadding="6" border="1" style="border-collapse: collapse"><tr><th>State</th><th>Reason</th>'
        f"<th>Object</th><th>Count</th><th>Time</th><th>Message</th></tr>{rows}</table>{more}</body></html>"
    )


def _row(alert: NotifiedAlert) -> str:
    labels = alert.labels
    about = f"{labels.get('namespace', '')} {labels.get('kind', '')}/{labels.get('name', '')}"
    color = "#b3261e" if alert.status is Status.FIRING else "#1c6b3c"
    cells = (labels.get("reason", ""), about.strip(), str(alert.count), summary.times(alert), summary.message_of(alert))
    texts = "".join(f"<td>{html.escape(summary.one_line(text))}</td>" for text in cells)
    return f'<tr><td style="color: {color}">{html.escape(summary.one_line(summary.state_of(alert)))}</td>{texts}</tr>'
