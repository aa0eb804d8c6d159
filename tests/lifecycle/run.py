"""Runs the state machine of the lifecycle test with Hypothesis.

run() needs the template database of stand.prepare_template().
"""

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.lifecycle.machine import Lifecycle


def run(number: int, examples: int, steps: int, shrink: bool = True) -> None:
    """Run `examples` examples with up to `steps` random steps, and raise the first failure.

    Args:
        number: The seed.
        shrink: Whether the notes of the failure have the smallest series of steps that leads to it.
    """
    options = settings(
        max_examples=examples,
        stateful_step_count=steps,
        phases=(Phase.generate, Phase.shrink) if shrink else (Phase.generate,),
        deadline=None,
        database=None,
        print_blob=False,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(seed(number)(Lifecycle), settings=options)
