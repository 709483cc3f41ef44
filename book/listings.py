"""An mdBook preprocessor: listings get their place and fit the page, commands are apart from their output, charts
follow the theme.

mdBook calls it when it builds the book, with the book as JSON on stdin. It does, before mdBook resolves what is left:

- A block of code that is included is dedented. A line above it names the file and links to a page with all of it,
  which is added at the end of the book: the links also work offline.
- A block of `console` becomes a block for each command and one for its output, so that each is copied alone. Output that
  goes on further down the page is a block of `text`.
- Bars of block characters, █ to ▏, are marked, because their gaps are covered by a style.
- `{{repository}}` becomes the repository's address, which Cargo.toml has.
- A page with pictures that have controls gets their scripts, and other pages get none.
- A check box of a list, `- [ ] **task**`, gets its task as a label, and can be ticked.
- A chart, `![description](output/chart.svg)`, becomes part of the page, because a picture in a file of its own cannot
  have the colours of the page's theme.
"""

import html
import json
import re
import sys
import textwrap
from pathlib import Path

FENCE = re.compile(r"^```(?P<info>[^\n]*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
INCLUDE = re.compile(r"^\{\{#include (?P<path>[^:}]+)(:(?P<anchor>[\w-]+))?\}\}$", re.MULTILINE)
ANCHOR = re.compile(r"ANCHOR(_END)?: *[\w-]+")
# The columns of a line that fits the page.
LONGEST = 100
BAR = re.compile("[█-▏]+")
PICTURE = re.compile(r'data-picture="(?P<name>[\w-]+)"')
# The scripts in src/js that all pictures with controls share, and those that each needs besides, in this order.
SHARED = ["picture", "controls", "stepper", "drawing", "numbers"]
SCRIPTS = {
    "bert-memory": ["bert_memory", "bert_memory_picture"],
    "cost": ["cost", "cost_picture"],
    "data-parallel": ["data_parallel", "data_parallel_picture"],
    "elastic": ["elastic", "elastic_picture"],
    "overlap": ["cost", "buckets", "overlap", "overlap_picture"],
    "ring": ["ring", "ring_picture"],
    "sampler": ["mersenne_twister", "sampler", "sampler_picture"],
    "scaling": ["buckets", "scaling", "scaling_picture"],
    "sharded-step": ["sharding", "sharding_picture"],
    "sharding-memory": ["sharding", "sharding_memory_picture"],
    "stories": ["stories", "stories_picture"],
}
COLUMNS = re.compile(r"\S {2,}\S")
REPOSITORY = re.compile(r'^repository = "(.+)"$', re.MULTILINE)
TASK = re.compile(r"^- \[ \] \*\*(?P<task>.+?)\*\*", re.MULTILINE)
CHART = re.compile(r"!\[(?P<description>[^\]]*)\]\((?P<path>output/[\w-]+\.svg)\)")


def main():
    if sys.argv[1:2] == ["supports"]:
        return
    context, book = json.load(sys.stdin)
    pages = Pages(Path(context["root"]).resolve())
    for chapter in chapters(book["items"]):
        folder = pages.book / "src" / Path(chapter["path"]).parent
        chapter["content"] = pages.prepare(chapter["content"], folder, "../" * len(Path(chapter["path"]).parent.parts))
    book["items"] += pages.of_sources()
    json.dump(book, sys.stdout)


def chapters(items):
    """All chapters that have a page, in their order."""
    for item in items:
        if isinstance(item, dict) and (chapter := item.get("Chapter")):
            if chapter["path"] is not None:
                yield chapter
            yield from chapters(chapter["sub_items"])


class Pages:
    def __init__(self, book):
        self.book = book
        self.sources = {}
        self.repository = REPOSITORY.search((book.parent / "Cargo.toml").read_text())[1]

    def prepare(self, text, folder, up):
        """A chapter's text, for a chapter in this folder, from which `up` leads to the book's first page."""
        text = text.replace("{{repository}}", self.repository)
        text = FENCE.sub(lambda fence: self.block(fence["info"], fence["body"], folder, up), text)
        text = TASK.sub(r'- <label><input type="checkbox"> **\g<task>**</label>', text)
        text = CHART.sub(lambda chart: drawing(folder / chart["path"], chart["description"]), text)
        return text + scripts(PICTURE.findall(text), up)

    def block(self, info, body, folder, up):
        """A block of code: its place, if it is included from a file of the repository, and what it contains."""
        place = ""
        for include in INCLUDE.finditer(body):
            file = (folder / include["path"]).resolve()
            listing = textwrap.dedent(included(file.read_text(), include["anchor"]))
            body = body.replace(include[0] + "\n", listing)
            if "output" not in file.parts:
                place = self.place(file, whole=include["anchor"] is None, up=up)
        lines = body.strip("\n").split("\n")
        if info.startswith("console"):
            return commands(lines, wraps="wrap" in info)
        if info == "sh" or info == "text" and not is_table(lines):
            info += ",wrap"
        return place + fence(info, lines)

    def place(self, file, whole, up):
        name = file.relative_to(self.book.parent).as_posix()
        self.sources[name] = file
        words = "" if whole else "From "
        return f'<p class="place">{words}<a href="{up}{page_of(name)}">{name}</a></p>\n\n'

    def of_sources(self):
        """A chapter with a page for each file that a listing is from."""
        names = sorted(self.sources)
        listed = "\n".join(f"- [{name}]({Path(page_of(name)).relative_to('sources')})" for name in names)
        about = f"# Sources\n\nThe files that the listings are from.\n\n{listed}\n"
        files = [chapter(name, source_page(name, self.sources[name]), page_of(name), ["Sources"]) for name in names]
        return ["Separator", chapter("Sources", about, "sources/index.html", [], files)] if names else []


def scripts(pictures, up):
    """The scripts of a page with these pictures, each once."""
    names = dict.fromkeys(name for picture in pictures for name in [*SHARED, *SCRIPTS[picture]])
    return "".join(f'\n<script src="{up}js/{name}.js"></script>' for name in names)


def chapter(name, content, path, parents, children=()):
    fields = {"name": name, "content": content, "number": None, "sub_items": list(children), "path": path}
    return {"Chapter": {**fields, "source_path": None, "parent_names": parents}}


def page_of(name):
    return f"sources/{name.replace('.', '_')}.html"


def source_page(name, file):
    language = {".rs": "rust,ignore", ".py": "python", ".toml": "toml", ".sh": "sh"}.get(file.suffix, "text")
    return f"# {name}\n\n````{language}\n{included(file.read_text(), None)}````\n"


def included(text, anchor):
    """The lines of an anchor, or all lines, without those that mark anchors."""
    lines = text.splitlines(keepends=True)
    if anchor is not None:
        start, end = (line_of(lines, f"{mark}: {anchor}") for mark in ["ANCHOR", "ANCHOR_END"])
        lines = lines[start + 1 : end]
    return "".join(line for line in lines if not ANCHOR.search(line))


def line_of(lines, mark):
    ends = re.compile(rf"\b{re.escape(mark)}\s*$")
    found = [at for at, line in enumerate(lines) if ends.search(line)]
    if len(found) != 1:
        sys.exit(f"{len(found)} lines end with `{mark}`, but there must be one")
    return found[0]


def commands(session, wraps):
    """Blocks for the commands of a session, each a line `$ command`, and for their outputs. A command goes on after a line
    that ends with a backslash, and a loop until its `done`."""
    blocks = []
    continues = False
    in_loop = False
    for line in session:
        is_command = line.startswith("$ ") or continues
        kind = "sh" if is_command else "text"
        text = line.removeprefix("$ ") if is_command else line
        in_loop = is_command and (in_loop or line.endswith("; do")) and line.strip() != "done"
        continues = is_command and (in_loop or line.endswith("\\"))
        if blocks and blocks[-1][0] == kind and not line.startswith("$ "):
            blocks[-1][1].append(text)
        else:
            blocks.append((kind, [text]))
    fenced = [fence(kind + (",wrap" if wraps or kind == "sh" or not is_table(lines) else ""), lines) for kind, lines in blocks]
    return '<div class="session">\n\n' + "\n\n".join(fenced) + "\n\n</div>"


def fence(info, lines):
    text = "\n".join(lines)
    if BAR.search(text):
        # No block of Markdown has parts with a style of their own.
        return f'<pre><code class="no-highlight wrap">{BAR.sub(marked, html.escape(text))}\n</code></pre>'
    return f"```{info}\n{text}\n```"


def marked(bar):
    return f'<span class="bar">{bar[0]}</span>'


def is_table(lines):
    """Whether lines have columns, which would be torn if a line was broken. A sentence below a table may be longer."""
    has_columns = [COLUMNS.search(line) is not None for line in lines]
    sentences = any(len(line) > LONGEST and not columns for line, columns in zip(lines, has_columns))
    return sum(has_columns) > 1 and not sentences


def drawing(path, description):
    """The chart as a part of the page. Markdown ends a piece of HTML at an empty line, so it must have none."""
    lines = "\n".join(line for line in path.read_text().splitlines() if line.strip())
    words = html.escape(" ".join(description.split()))
    return f'<figure class="chart" aria-label="{words}">\n{lines}\n</figure>'


if __name__ == "__main__":
    main()
