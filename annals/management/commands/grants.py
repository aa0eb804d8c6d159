"""`annals grants`: the database rights, limits and logins of the web and of the consumer."""

from argparse import ArgumentParser

from history.management.action import ActionCommand


class Command(ActionCommand):
    help = (
        "Print or apply the SQL that gives the web and the consumer their database rights, and the "
        "logins their limits."
    )
    action = "annals.management.actions.grants.run"

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--apply", action="store_true", help="run the SQL, as the owner of the tables"
        )
        parser.add_argument(
            "--login",
            nargs=3,
            action="append",
            default=[],
            metavar=("ROLE", "NAME", "FILE"),
            help="with --apply: create the login NAME of the role `web` or `consumer`, or change "
            "its password; FILE has the password. Can be repeated. Needs CREATEROLE",
        )
