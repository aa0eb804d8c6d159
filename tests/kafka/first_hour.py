"""`python first_hour.py PATH...`: prints as JSON what operators and clients of Annals see.

The output has the page "Operations", findings of alerts and checks, and the answers of the API at
the paths. tests.soak.moved runs the script with a clock that is days ahead, and with the login of
the tables' owner.
"""

import json
import os
import sys

import django

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "annals.settings")
    django.setup()
    from django.core.checks import Warning
    from django.test import Client

    from annals.access.local_logins import create_break_glass_login
    from annals.operations import metrics_page
    from annals.operations.alert_checks import collect_values, find_problems
    from annals.operations.deploy_checks import check_first_hour
    from annals.operations.jobs import list_jobs
    from history.common import clock
    from history.models import SealedDay

    client = Client(SERVER_NAME="localhost", headers={"Accept-Language": "en"})
    client.force_login(create_break_glass_login("operator", clock.now()))
    problems = find_problems(collect_values(metrics_page.STORE_COLLECTOR.collect()), list_jobs())
    page = client.get("/admin/operations/")
    checks = check_first_hour(databases=["default"])
    print(
        json.dumps(
            {
                "findings": [
                    [str(finding.problem), [str(place) for place in finding.affected]]
                    for finding in problems
                ],
                "page": page.content.decode(),
                "warnings": [check.id for check in checks if isinstance(check, Warning)],
                "infos": [check.id for check in checks if not isinstance(check, Warning)],
                "answers": [client.get(f"/api/v1/{path}").json()["data"] for path in sys.argv[1:]],
                "packed": sorted(
                    str(day)
                    for day in SealedDay.objects.filter(packed_at__isnull=False)
                    .values_list("day", flat=True)
                    .distinct()
                ),
            }
        )
    )
