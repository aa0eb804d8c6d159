"""Whether an installation is distributed."""

from history import distribution
from tests.citus.cluster import Citus


def test_tables_of_versions_that_are_distributed_are_found_from_every_node(citus: Citus) -> None:
    plain = citus.raw()
    assert not distribution.active(plain)
    plain.execute("SELECT create_distributed_table('gap_document', 'id')")
    distribution.remember(plain, None)
    assert not distribution.active(plain)
    plain.execute("SELECT create_distributed_table('product_instance_aud', 'id')")
    assert not distribution.active(plain), "what was found is remembered"
    distribution.remember(plain, None)
    assert distribution.active(plain)
    for node in range(1, len(citus.urls)):
        assert distribution.active(citus.raw(node))
