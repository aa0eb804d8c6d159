"""Counts names and commit subjects that break rules: `python scripts/voice.py [ROOT] [--list]`.

CONTRIBUTING.md has the rules, under "How the code speaks". A count does not judge: it says which
names and subjects to read. The script uses only the standard library and git, so it can also
measure an older commit: `git worktree add /tmp/before COMMIT`, then
`python scripts/voice.py /tmp/before`.
"""

import argparse
import ast
import re
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

PACKAGES = ("annals", "history", "ingest", "outbox")
SUBJECT_LIMIT = 72
FIRST_COMMIT = "a6bac2ff"  # the commit before the code got this voice

# The words with which the name of a function may begin.
VERBS = frozenset(
    """
    abandon accept acknowledge act activate add admit adopt advance align allow announce answer
    append apply archive are arrange as ask assign attach attempt audit authenticate await backfill
    balance begin bind blame block branch break build bump calculate call can cancel catch change
    charge check choose claim classify clean clear close collect colour combine commit compare
    compile complete compose compress compute configure confirm connect consume contains convert
    copy count cover create cut decide declare decode decompress decrypt deduplicate defer define
    delete deliver derive descend describe detach determine diff digest disable discard disconnect
    discover dispatch display distribute divide do download drain draw drop dump emit empty enable
    encode encrypt end ensure enter erase escape estimate evaluate evict examine exclude execute
    exit expand expire explain export extend extract fail feed fetch fill filter finalize find
    finish fit fits flatten flush fold follow forbid forecast forget format free from generate get
    give grant group guard guess halt handle has hash heal hide highlight hold identify import
    include increase index infer initialise initialize inline insert inspect install interpret
    invalidate invite is isolate issue iterate join judge keep kill label launch leave limit link
    list listen load locate lock log look lower maintain make map mark mask match may measure merge
    meter migrate mix modify move must name narrow needs normalize note notify observe offer omit
    open order override pack pair parse partition pass patch pause peek permit persist pick ping
    place plan pluralize poll pop populate postpone predict prefix prepare print probe process
    produce protect prove provide prune publish pull push put quarantine query queue quote raise
    rank read rebuild receive recognize reconnect record recover recreate redirect reduce refresh
    refuse register reject release remember remove rename render renew repair repeat replace reply
    report reprice request require resend reserve reset resolve respond restart restore restrict
    resume retain retire retrain retry return reuse reverse revoke rewrite rotate round run sample
    save say scale scan schedule score scrub seal search select send separate serialize serve set
    settle share shift shorten should show shrink shuffle sign simulate skip sleep slice sort spawn
    spend split stage start stay stop store stream strip submit subscribe subtract suggest sum
    suspend swap switch sync take tell terminate test throttle tidy time to touch trace track train
    transfer transform translate trim truncate try undo unescape unlock unmask unpack unregister
    unretire unseal unstick unsubscribe update upgrade upload upsert use vacuum validate verify
    visit wait wake walk warn was watch weigh withdraw wrap write yield
    """.split()  # noqa: SIM905 - a list of words is read as words
)
# Names by which Django, DRF, OIDC, psycopg, gunicorn, psqlextra and MkDocs call our functions.
FRAMEWORK_NAMES = frozenset(
    """
    admin_view bulk_create bulk_update changeform_view changelist_view choices db_for_read db_type
    deconstruct fetchall finalize_response full_clean handle login login_failure login_success
    lookup_allowed lookups main media name on_exit on_files on_page_markdown options queryset ready
    when_ready
    """.split()  # noqa: SIM905 - a list of words is read as words
)
# A function with such a decorator is used like a value, or has a name that a template or test uses.
VALUE_DECORATORS = frozenset(
    {"property", "cached_property", "setter", "display", "simple_tag", "fixture"}
)
PRONOUNS = frozenset(
    """
    asked both came chosen done each everything found given gone held here its kept known left made
    mine most named nothing one other others ours own rest said shown taken theirs there wanted what
    why
    """.split()  # noqa: SIM905 - a list of words is read as words
)
# Pronouns that stay, because something outside the code has the same name.
ALLOWED_PRONOUNS = {
    ("annals/access/models.py", "made"): "a column of the table",
    ("history/models.py", "held"): "a column of the table",
    ("history/api/components.py", "why"): "a name in the JSON of the API",
    ("ingest/models.py", "came"): "a column of the table",
    ("ingest/models.py", "why"): "a column of the table",
}
SHARED_CLASS_NAMES = frozenset({"Command", "Meta", "Migration"})
# Classes that may have the name of a class in another module.
ALLOWED_CLASSES = {("outbox/models.py", "Message"): "the model of the table outbox_message"}
WAY_TITLE = re.compile(r"## The way of (.+)")
MODULE_IN_TABLE = re.compile(r"^\| `([\w/-]+\.py)`", re.MULTILINE)


@dataclass
class NameFindings:
    """Findings about the names in a checkout. A listed name is a text `file:line name`."""

    public_functions: int = 0
    verbless_functions: list[str] = field(default_factory=list)
    pronouns: list[str] = field(default_factory=list)
    modules_by_class: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))

    @property
    def verb_share(self) -> float:
        """The share of public functions that begin with a verb."""
        return 1 - len(self.verbless_functions) / max(self.public_functions, 1)

    @property
    def shared_classes(self) -> dict[str, set[str]]:
        """The modules of each class name that stands in more than one module."""
        return {name: files for name, files in self.modules_by_class.items() if len(files) > 1}


def examine_names(root: Path, folders: list[str]) -> NameFindings:
    """Find names of functions, classes and variables in these folders that break naming rules."""
    findings = NameFindings()
    for folder in folders:
        for file in sorted((root / folder).rglob("*.py")):
            if "migrations" not in file.parts:
                _examine_file(findings, str(file.relative_to(root)), file.read_text())
    return findings


def _examine_file(findings: NameFindings, path: str, text: str) -> None:
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                _examine_function(findings, path, node)
            case ast.ClassDef(name=name) if name not in SHARED_CLASS_NAMES:
                if (path, name) not in ALLOWED_CLASSES:
                    findings.modules_by_class[name].add(path)
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name) if name in PRONOUNS:
                if (path, name) not in ALLOWED_PRONOUNS:
                    findings.pronouns.append(f"{path}:{node.lineno} {name}")


def _examine_function(
    findings: NameFindings, path: str, node: ast.FunctionDef | ast.AsyncFunctionDef
) -> None:
    if node.name.startswith("_") or node.name in FRAMEWORK_NAMES:
        return
    if VALUE_DECORATORS & set(_list_decorators(node)):
        return
    findings.public_functions += 1
    if node.name.split("_")[0] not in VERBS:
        findings.verbless_functions.append(f"{path}:{node.lineno} {node.name}")


def _list_decorators(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    """Yield the last name of each decorator: `display` of `@admin.display(...)`."""
    for decorator in node.decorator_list:
        expression = decorator.func if isinstance(decorator, ast.Call) else decorator
        yield ast.unparse(expression).rpartition(".")[2]


def count_way_modules(structure_page: str) -> dict[str, int]:
    """Return how many modules each section "The way of ..." of docs/structure.md lists."""
    counts = {}
    for section in re.split(r"^(?=## )", structure_page, flags=re.MULTILINE):
        if title := WAY_TITLE.match(section):
            counts[title[1]] = len(set(MODULE_IN_TABLE.findall(section)))
    return counts


def list_top_folders(root: Path, package: str) -> list[str]:
    """Return the names of the packages directly in a package."""
    return sorted(
        folder.name
        for folder in (root / package).iterdir()
        if folder.name != "migrations" and any(folder.rglob("*.py"))
    )


def list_long_subjects(root: Path, since: str) -> list[str]:
    """Return the commits after `since` with a subject over SUBJECT_LIMIT. Leave out merges."""
    command = ["git", "log", "--no-merges", "--format=%h %s", f"{since}..HEAD"]
    log = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    lines = log.stdout.splitlines()
    return [line for line in lines if len(line.partition(" ")[2]) > SUBJECT_LIMIT]


def main(root: Path, folders: list[str], since: str, *, with_places: bool) -> None:
    findings = examine_names(root, folders)
    subjects = list_long_subjects(root, since)
    shared = [
        f"{name}: {', '.join(sorted(files))}" for name, files in findings.shared_classes.items()
    ]
    print(
        f"{findings.verb_share:>7.1%}  of {findings.public_functions:,} public functions begin"
        " with a verb"
    )
    print(
        f"{len(findings.pronouns):>7}  pronouns and bare participles as names"
        f" ({len(ALLOWED_PRONOUNS)} more are allowed)"
    )
    print(f"{len(shared):>7}  class names in more than one module")
    structure = root / "docs" / "structure.md"
    for way, count in count_way_modules(structure.read_text()).items():
        print(f"{count:>7}  modules on the way of {way}")
    for package in PACKAGES:
        top_folders = list_top_folders(root, package)
        print(f"{len(top_folders):>7}  folders at the top of {package}")
    print(f"{len(subjects):>7}  commit subjects over {SUBJECT_LIMIT} characters since {since}")
    if with_places:
        for title, places in (
            ("functions without a verb", findings.verbless_functions),
            ("pronouns", findings.pronouns),
            ("shared class names", shared),
            ("long subjects", subjects),
        ):
            print(f"\n{title}:", *(places or ["none"]), sep="\n  ")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition(":")[0])
    checkout = Path(__file__).resolve().parents[1]
    parser.add_argument("root", type=Path, nargs="?", default=checkout, help="of the checkout")
    parser.add_argument("--list", action="store_true", help="print the places, too")
    parser.add_argument("--since", default=FIRST_COMMIT, help="measure the subjects after this one")
    parser.add_argument(
        "--folders",
        nargs="+",
        default=list(PACKAGES),
        help="read names here (default: %(default)s)",
    )
    options = parser.parse_args()
    main(options.root, options.folders, options.since, with_places=options.list)
