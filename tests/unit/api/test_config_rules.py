from base64 import b64encode

import pytest

from eventbus.api.kube.validation import secret_causes
from eventbus.model.event import ObjectMeta
from eventbus.model.objects.config import Secret


@pytest.mark.parametrize("text", ["[]", "{", "[" * 100_000, "\N{SNOWMAN}"], ids=["list", "cut", "deep", "text"])
def test_credentials_that_are_no_object_are_said_and_not_shown(text: str) -> None:
    data = {".dockerconfigjson": b64encode(text.encode()).decode()}
    secret = Secret(metadata=ObjectMeta(name="x"), type="kubernetes.io/dockerconfigjson", data=data)
    (cause,) = secret_causes(secret, None)
    assert cause.field == "data[.dockerconfigjson]"
    assert "redacted" in cause.message
