"""`python ask.py ADDRESS...`: prints the answers of the release in the current folder as JSON.

Run it with PYTHONPATH set to the folder of the release. It imports only Django and the settings of
the release. If ASKED_AT is set, it also imports the clock of the release, and sets the clock to the
moment in ASKED_AT.
"""

import base64
import json
import os
import sys
from datetime import datetime

import django

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "annals.settings")
    django.setup()
    from django.test import Client

    if asked_at := os.environ.get("ASKED_AT"):
        from history.common import clock

        clock.now = lambda: datetime.fromisoformat(asked_at)
    login = "Basic " + base64.b64encode(b"support:support").decode()
    client = Client(SERVER_NAME="localhost", headers={"Authorization": login})
    answers = []
    for address in sys.argv[1:]:
        answer = client.get(f"/api/v1/{address}")
        assert answer.status_code == 200, (address, answer.content)
        answers.append(json.loads(answer.content)["data"])
    print(json.dumps(answers, ensure_ascii=False))
