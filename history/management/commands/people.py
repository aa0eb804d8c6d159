"""`annals people import FILE.csv`: imports full names, and whether a login is a person."""

from history.management.load_file import LoadFileCommand


class Command(LoadFileCommand):
    help = "Import logins with their full names from CSV (login,full_name,kind)."
    action = ("import", "add and change people; nobody is removed")
    file = ("FILE.csv", "UTF-8, with a header line")

    def load(self, text: bytes) -> str:
        from history.store.catalogue.people import load_people

        counts = load_people(text)
        return f"{counts.added} added, {counts.changed} changed, {counts.unchanged} unchanged."
