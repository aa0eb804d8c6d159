"""So that a failed comparison says what was compared."""

import pytest

pytest.register_assert_rewrite("tests.oracle.checks")
