"""`annals labels load FILE.json`: loads the labels of fields."""

from history.common.text_tables import pluralize
from history.management.load_file import LoadFileCommand


class Command(LoadFileCommand):
    help = "Load field labels from a JSON list; labels for the same field are replaced."
    action = ("load", "add and change labels; none is removed")
    file = (
        "FILE.json",
        'of the form of history/store/catalogue/labels.json; "sensitive": true masks a field',
    )

    def load(self, text: bytes) -> str:
        from history.store.catalogue.labels import load_labels

        return f"{pluralize(load_labels(text), 'label')} loaded."
