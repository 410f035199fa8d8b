"""Hooks of mkdocs: the pages lie all over the sources, where other tools read them as well.

A page keeps its place in the tree, so that its links lead to the same files in the guide; what it links to comes too.
"""

import logging
import re
from pathlib import Path

from mkdocs.structure.files import File, Files
from pygments.formatters import HtmlFormatter

FOLDERS = [".", "docs", "examples", "ffi/python", "sim", "sim/docs"]
# Code outside of blocks, and its options and names with hyphens, where a line would break.
INLINE = re.compile(r"(?<!<pre>)(?<!</span>)<code>[^<]*</code>")
OPTION = re.compile(r"[\w-]*-[\w-]+")
LINK = re.compile(r"\]\(([^)#\s]+)")
log = logging.getLogger("mkdocs.hooks")


def on_files(files, config):
    """Return the theme's files, the pages and what they link to, in place of the files of one folder."""
    theme = [file for file in files if file.src_dir != config.docs_dir]
    root = Path(config.config_file_path).parent
    pages = [page for folder in FOLDERS for page in sorted((root / folder).glob("*.md"))]
    linked = {page.parent.joinpath(link).resolve() for page in pages for link in LINK.findall(page.read_text())}
    others = {file for file in linked if file.is_file() and file.suffix != ".md"} | {root / "docs/guide.css"}
    found = [
        File.generated(config, str(file.relative_to(root)), abs_src_path=str(file))
        for file in [*pages, *sorted(others)]
    ]
    # One of Pygments' styles for a light page, another for a dark one.
    styles = {"light": "friendly", "dark": "github-dark"}
    sheets = [
        HtmlFormatter(style=style).get_style_defs(f"[data-bs-theme={theme}] .codehilite")
        for theme, style in styles.items()
    ]
    return Files([*theme, *found, File.generated(config, "docs/code.css", content="\n".join(sheets))])


def on_page_markdown(markdown, **_):
    """Leave out comments, whose code no reader shall see, and the words that rustdoc adds to a language."""
    return re.sub(r"^[ ]*<!--.*?-->[^\n]*\n", "", markdown, flags=re.M | re.S).replace("```rust,no_run\n", "```rust\n")


def on_page_content(html, page, **_):
    """Keep options whole. Warn of a fence of code that Markdown did not understand, which ends a strict build."""
    if "```" in html:
        log.warning("%s shows a fence of code", page.file.src_uri)
    return INLINE.sub(lambda code: OPTION.sub(r'<span class="option">\g<0></span>', code[0]), html)
