"""Every variant of the manifests, for the tests that hold for all of them."""

import pytest
from rendering import VARIANTS, Rendered, render


@pytest.fixture(scope="session", params=VARIANTS)
def rendered(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Rendered:
    return render(request.param, tmp_path_factory.mktemp("deploy"))
