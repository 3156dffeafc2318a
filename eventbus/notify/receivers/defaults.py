"""The `global` section of a rules file: defaults of receivers, with Alertmanager's names."""

from __future__ import annotations

from eventbus.notify.fields import Duration, Secret, Strict


class Global(Strict, frozen=True, kw_only=True):
    """Defaults. *resolve_timeout*: of `resolve_after`."""

    resolve_timeout: Duration | None = None
    slack_api_url: Secret | None = None
    slack_api_url_file: str = ""
    slack_app_token: Secret | None = None
    slack_app_token_file: str = ""
    pagerduty_url: str = ""
    smtp_smarthost: str = ""
    smtp_from: str = ""
    smtp_hello: str = "localhost"
    smtp_auth_username: str = ""
    smtp_auth_password: Secret | None = None
    smtp_auth_password_file: str = ""
    smtp_require_tls: bool = True
