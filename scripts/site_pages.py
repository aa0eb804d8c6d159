"""Adds the pages at the top of the repository, such as README.md, to the site of docs/.

mkdocs.yml names this module as a hook. MkDocs calls its functions while it builds the site.
"""

import re
from pathlib import Path
from posixpath import normpath, relpath
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
PAGES = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "CODE_OF_CONDUCT.md")
FOLDER = "project"
LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)#\s]+)(?=[)#])")


def on_files(files: Files, config: Any) -> Files:
    """Add PAGES to the files of the site. Called by MkDocs before it reads them."""
    for name in PAGES:
        text = (ROOT / name).read_text(encoding="utf-8")
        files.append(File.generated(config, f"{FOLDER}/{name}", content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Return the Markdown of a page with links changed so that they work on the site.

    In the repository, pages in docs/ link to files outside of docs/, and those files link to pages
    in docs/. MkDocs calls this function for each page.
    """
    page_path = page.file.src_uri
    is_project_page = page_path.startswith(f"{FOLDER}/")
    page_folder = "" if is_project_page else f"docs/{page_path}".rpartition("/")[0]

    def resolve_link(link: re.Match[str]) -> str:
        target = normpath(f"{page_folder}/{link[1]}".lstrip("/"))
        if (ROOT / target / "README.md").exists():
            target = f"{target}/README.md"
        if target in PAGES:
            target = f"{FOLDER}/{target}"
        elif target.startswith("docs/"):
            target = target.removeprefix("docs/")
        elif (ROOT / target).exists():
            # A file or folder of the repository that is not on the site.
            return "#"
        start = page_path.rpartition("/")[0] or "."
        return relpath(target, start)

    text = LINK.sub(resolve_link, markdown)
    return re.sub(r"\[([^\]]*)\]\(#\)", r"\1", text)
