"""Authenticates users by signed OpenID Connect tokens. Imported only with `--authentication-config`."""
