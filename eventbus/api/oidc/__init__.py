"""Users by the signed tokens of OpenID Connect issuers. Imported where `--authentication-config` is given alone."""
