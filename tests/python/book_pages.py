"""Looks at the pages of the built book as a reader does, in a browser: what scrolls sideways on wide and narrow screens,
what is hard to read in a theme, what the console says, and what a page asks for.

    python tests/python/book_pages.py FOLDER    # prints what is wrong, and fails if anything is
"""

import sys
from pathlib import Path
from urllib.parse import quote

import browser
from picture import NARROW, SMALLEST_TEXT

WIDTHS = [NARROW, 400, 800, 1400]
WIDE = WIDTHS[-1]
THEMES = ["light", "rust", "coal", "navy", "ayu"]
# Of text and of lines, by the Web Content Accessibility Guidelines, level AA.
CONTRAST = 4.5
CONTRAST_OF_LINES = 3
# Which share of the blocks may be wider than their page, on the widest screen and on a telephone.
SCROLLING = {WIDE: 0.01, 400: 0.15}
# All pages in one, the list of chapters, and what a server shows for a page that is not there.
NOT_PAGES = ["print.html", "toc.html", "404.html"]

# What a reader searches for, and a chapter that must be among the first results.
SEARCHES = {
    "OOM": "tasks.html",
    "syncbn": "batch-norm-across-ranks.html",
    "LARS": "large-batches.html",
    "weak scaling": "how-far-it-scales.html",
}
RESULTS = """(async () => {
  for (let tries = 0; tries < 100; tries++) {
    const links = [...document.querySelectorAll('#mdbook-searchresults li > a')];
    if (links.length > 0) return links.slice(0, 3).map(link => link.pathname.split('/').at(-1));
    await new Promise(resolve => setTimeout(resolve, 100));
  }
  return [];
})()"""

# What a page has for which it loads scripts of the book's own, and what lacks a label or is lost on paper.
PARTS = """(() => ({
  pictures: document.querySelectorAll('[data-picture]').length,
  scripts: [...document.scripts].filter(script => /\\/js\\/\\w+\\.js$/.test(script.src)).length,
  unlabelled: [...document.querySelectorAll('main input')].filter(input => input.labels.length === 0).length,
}))()"""
HIDDEN_ANSWERS = """[...document.querySelectorAll('main details > :not(summary)')]
  .filter(part => !part.checkVisibility()).length"""

LAYOUT = """(() => {
  const scrolls = element => element.scrollWidth > element.clientWidth + 1;
  const blocks = [...document.querySelectorAll('main pre')].filter(block => block.offsetParent);
  const scrolling = blocks.filter(block => scrolls(block) || [...block.children].some(scrolls));
  const longest = text => text.trimEnd().split('\\n').reduce((a, b) => b.length > a.length ? b : a);
  // A column begins after two spaces, in at least three rows.
  const isTable = block => block.textContent.split('\\n').filter(line => /\\S {2,}\\S/.test(line)).length > 2;
  const isOutput = block => block.querySelector('.language-text') !== null;
  const sizes = [...document.querySelectorAll('main svg text')]
    .map(text => parseFloat(getComputedStyle(text).fontSize) * text.getScreenCTM().a);
  return {
    // mdBook lets the text scroll, not the window.
    wider: Math.max(...['html', '.content', 'main'].map(name => document.querySelector(name))
      .map(part => part.scrollWidth - part.clientWidth)),
    blocks: blocks.length,
    scrolling: scrolling.map(block => longest(block.textContent)),
    tables: scrolling.filter(block => isOutput(block) && isTable(block)).map(block => longest(block.textContent)),
    smallest: Math.min(100, ...sizes),
  };
})()"""

# Chooses a theme. Its colours of code are a style sheet that is perhaps loaded only now.
THEME = """(async () => {
  const unused = [...document.querySelectorAll('link[rel=stylesheet]')].filter(sheet => sheet.disabled);
  document.getElementById('mdbook-theme-NAME').click();
  await Promise.all(unused.filter(link => !link.disabled && !link.sheet).map(link => new Promise((resolve, reject) => {
    link.onload = resolve;
    link.onerror = () => reject(new Error(`${link.href} cannot be loaded`));
  })));
  await document.fonts.ready;
  // Colours that still change slowly are taken as they will be.
  document.getAnimations().filter(change => change instanceof CSSTransition).forEach(slow => slow.finish());
})()"""

FAINT = """(() => {
  const parse = colour => {
    const [r, g, b, a = 1] = colour.match(/[\\d.]+/g).map(Number);
    return [r, g, b, a];
  };
  const over = ([r, g, b, a], below) => [r, g, b].map((part, at) => part * a + below[at] * (1 - a));
  const backgrounds = new Map([[null, [255, 255, 255]]]);
  const background = element => {
    if (!backgrounds.has(element)) {
      const own = parse(getComputedStyle(element).backgroundColor);
      backgrounds.set(element, own[3] === 1 ? own.slice(0, 3) : over(own, background(element.parentElement)));
    }
    return backgrounds.get(element);
  };
  const luminance = colour => colour
    .map(part => part / 255)
    .map(part => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4)
    .reduce((sum, part, at) => sum + part * [0.2126, 0.7152, 0.0722][at], 0);
  const contrast = (colour, below) => {
    const [a, b] = [over(colour, below), below].map(luminance);
    return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  };
  const isText = node => node.nodeType === Node.TEXT_NODE && node.textContent.trim() !== '';
  const seen = new Map();
  const look = (element, colour, below, least) => {
    const found = contrast(colour, below);
    const kind = `${element.tagName.toLowerCase()}.${element.getAttribute('class') ?? ''}`;
    if (found < least && !(seen.get(kind) < found)) seen.set(kind, found);
  };
  for (const element of document.querySelectorAll('main *, .sidebar a, .menu-title')) {
    // Words on a coloured bar have a colour of their own; what is below them is not their parent.
    if (element.closest('button') || element.matches('svg :not(text, tspan), text[fill^="#"]')) continue;
    if (!element.checkVisibility() || ![...element.childNodes].some(isText)) continue;
    const style = getComputedStyle(element);
    look(element, parse(element.closest('svg') ? style.fill : style.color), background(element), CONTRAST_OF_TEXT);
  }
  for (const element of document.querySelectorAll('.controlled :is(.curve, .dot, line.solid, line.dashed)')) {
    const style = getComputedStyle(element);
    const [lane] = element.closest('svg').querySelectorAll('.lane');
    const page = background(element);
    const below = lane ? over([...parse(style.color).slice(0, 3), getComputedStyle(lane).fillOpacity], page) : page;
    look(element, parse(style.stroke), below, CONTRAST_OF_LINES);
  }
  for (const element of document.querySelectorAll('.device .bar span')) {
    const { boxShadow, backgroundColor } = getComputedStyle(element);
    const edge = boxShadow.match(/rgba?\\(.*?\\)/)?.[0] ?? backgroundColor;
    look(element, parse(edge), background(element.closest('.device')), CONTRAST_OF_LINES);
  }
  return [...seen].map(([kind, found]) => `${kind} ${found.toFixed(2)}`);
})()""".replace("CONTRAST_OF_TEXT", str(CONTRAST)).replace("CONTRAST_OF_LINES", str(CONTRAST_OF_LINES))

# How many keywords the listings have, and how many of these have a colour of their own. Only a theme's style sheet colours
# keywords, while book/contrast.css colours some other words too.
KEYWORDS = """(() => {
  const keywords = [...document.querySelectorAll('main code .hljs-keyword')];
  const colour = element => getComputedStyle(element).color;
  return [keywords.length, keywords.filter(keyword => colour(keyword) !== colour(keyword.closest('code'))).length];
})()"""

SIDEBAR = """(() => {
  const [sidebar] = document.getElementsByTagName('mdbook-sidebar-scrollbox');
  const isShown = item => getComputedStyle(item).display !== 'none';
  const opensNothing = toggle => ![...toggle.closest('li').querySelectorAll('li')].some(isShown);
  const links = [...sidebar.querySelectorAll('a[href]')].filter(link => link.checkVisibility());
  return {
    wider: sidebar.scrollWidth - sidebar.clientWidth,
    links: links.length,
    sources: links.map(link => link.pathname).filter(path => /\\/sources\\/(?!index)/.test(path)),
    empty: [...sidebar.querySelectorAll('.chapter-fold-toggle')].filter(toggle => isShown(toggle) && opensNothing(toggle))
      .map(toggle => toggle.closest('li').textContent.trim().split('\\n')[0]),
  };
})()"""


def main(folder):
    pages = [page for page in sorted(folder.glob("*.html")) if page.name not in NOT_PAGES]
    # The pages of sources are all alike: two of them stand for the rest.
    pages += sorted((folder / "sources").rglob("*.html"))[:2]
    wrong, blocks, scrolling, keywords = [], 0, {width: [] for width in SCROLLING}, 0
    with browser.Browser() as reader:
        page = reader.page("about:blank")
        for path in pages:
            # On a narrow screen a page begins without its sidebar.
            page.resize(WIDTHS[0])
            page.open(path.as_uri())
            found = examine(page)
            blocks += found["blocks"]
            keywords += found["keywords"]
            name = path.relative_to(folder)
            for width, lines in found["scrolling"].items():
                scrolling[width] += [f"{name}: {line}" for line in lines]
            wrong += [f"{name}: {what}" for what in found["wrong"]]
        for words, chapter in SEARCHES.items():
            page.open(f"{(folder / 'index.html').as_uri()}?search={quote(words)}")
            if chapter not in (results := page.evaluate(RESULTS)):
                wrong.append(f"a search for {words} finds {results}, and not {chapter}")
        page.without_scripts()
        page.resize(WIDTHS[0])
        for path in pages:
            page.open(path.as_uri())
            if (wider := page.evaluate(LAYOUT)["wider"]) > 0:
                wrong.append(f"{path.relative_to(folder)}: without scripts, {wider} px of the page are off the screen")
    for width, lines in scrolling.items():
        scroll = f"{len(lines)} of {blocks} blocks scroll sideways at {width} px"
        print(f"{len(pages)} pages, {scroll}")
        if len(lines) > SCROLLING[width] * blocks:
            wrong += [f"{scroll}, more than {SCROLLING[width]:.0%}; their longest lines:", *lines]
    if blocks < 100:
        wrong.append(f"only {blocks} blocks were found")
    if keywords == 0:
        wrong.append("no keyword was found")
    for what in wrong:
        print(what, file=sys.stderr)
    sys.exit(1 if wrong else 0)


def examine(page):
    """What is wrong with a page; its blocks of code and keywords, and the longest line of each block that scrolls
    sideways."""
    wrong, scrolling = [], {}
    # A page begins in the theme that was chosen last, of which the style sheet may still be on its way.
    page.evaluate(THEME.replace("NAME", THEMES[0]))
    for width in WIDTHS:
        page.resize(width)
        layout = page.evaluate(LAYOUT)
        at = f"on a screen of {width} px"
        if layout["wider"] > 0:
            wrong.append(f"{at}, {layout['wider']} px of the page are off the screen")
        if layout["smallest"] < SMALLEST_TEXT:
            wrong.append(f"{at}, text of {layout['smallest']:.1f} px in a picture")
        if width in SCROLLING:
            scrolling[width] = layout["scrolling"]
        if width == WIDE:
            found = {"blocks": layout["blocks"], "scrolling": scrolling}
            wrong += [f"{at}, a table of numbers is cut off: {line}" for line in layout["tables"]]
    parts = page.evaluate(PARTS)
    if (parts["pictures"] > 0) != (parts["scripts"] > 0):
        wrong.append(f"{parts['pictures']} pictures with controls, but {parts['scripts']} scripts")
    if parts["unlabelled"] > 0:
        wrong.append(f"{parts['unlabelled']} inputs without a label")
    page.emulate("print")
    if (hidden := page.evaluate(HIDDEN_ANSWERS)) > 0:
        wrong.append(f"on paper, {hidden} parts of answers are hidden")
    page.emulate()
    page.evaluate("document.getElementById('mdbook-sidebar-toggle').click()")
    sidebar = page.evaluate(SIDEBAR)
    if sidebar["wider"] > 0:
        wrong.append(f"{at}, {sidebar['wider']} px of the sidebar are off its edge")
    if sidebar["links"] == 0:
        wrong.append(f"{at}, the sidebar lists nothing")
    wrong += [f"the sidebar lists {path}" for path in sidebar["sources"]]
    wrong += [f"a toggle of the sidebar opens nothing: {chapter}" for chapter in sidebar["empty"]]
    for theme in THEMES:
        page.evaluate(THEME.replace("NAME", theme))
        found["keywords"], coloured = page.evaluate(KEYWORDS)
        if coloured < found["keywords"]:
            wrong.append(f"in the theme {theme}, {coloured} of {found['keywords']} keywords have a colour of their own")
        wrong += [f"in the theme {theme}, a contrast of {contrast}" for contrast in page.evaluate(FAINT)]
    wrong += [f"the console says: {error}" for error in page.errors]
    wrong += [f"it loads {url}" for url in page.requests if not url.startswith(("file:", "data:", "blob:"))]
    return {**found, "wrong": wrong}


if __name__ == "__main__":
    if browser.installed() is None:
        print("not run: there is no Chromium or Chrome here")
    else:
        main(Path(sys.argv[1]))
