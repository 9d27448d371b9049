"""Builds the documents as a site: `./run docs` writes `build/site`, `./run docs --serve` shows it while one edits.

Pages are read on the repository's host as well, so their links lead from file to file. The site has the same files in
the same folders; links into folders that it leaves out (examples, sources) are taken away.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = ROOT / "build" / "pages"
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)#\s]+)(#[^)]*)?\)")


def main() -> int:
    copy_pages()
    what = ["serve"] if "--serve" in sys.argv[1:] else ["build", "--strict", "--quiet"]
    command = [sys.executable, "-m", "mkdocs", *what, "--config-file", str(ROOT / "mkdocs.yml")]
    # The theme announces its successor at every build.
    done = subprocess.run(command, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"})
    if done.returncode == 0:
        print("build/site/index.html")
    return done.returncode


def copy_pages() -> None:
    shutil.rmtree(PAGES, ignore_errors=True)
    PAGES.mkdir(parents=True)
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.*")]:
        target = PAGES / page.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        if page.suffix == ".md":
            target.write_text(with_links_of_the_site(page), encoding="utf-8")
        else:
            shutil.copy2(page, target)


def with_links_of_the_site(page: Path) -> str:
    """The text of a page; a link to what the site does not have becomes its words."""

    def kept(found: re.Match[str]) -> str:
        image, words, target = found.group(1), found.group(2), found.group(3)
        if "://" in target:
            return found.group(0)
        to = (page.parent / target).resolve()
        has = to.is_file() and ((to.parent == ROOT and to.suffix == ".md") or (ROOT / "docs") in to.parents)
        return found.group(0) if has else ("" if image else words)

    return LINK.sub(kept, page.read_text(encoding="utf-8"))


if __name__ == "__main__":
    sys.exit(main())
