"""A picture with controls in a page of the book, moved by keyboard."""

import json
import re
import sys

NARROW = 360
# A window of a small notebook, which a picture fits with its controls.
WIDE, HIGH = 1400, 700
# Pixels on the screen, also where a picture or a chart is drawn smaller than it is.
SMALLEST_TEXT = 12

# The name of the control that the keyboard reaches.
FOCUSED = """(active => active.closest('label')?.firstChild.textContent ?? active.ariaLabel ?? active.textContent)(
  document.activeElement)"""

LAYOUT = """(() => {
  const hasText = element => [...element.childNodes].some(node => node.nodeType === Node.TEXT_NODE && node.data.trim());
  const size = element => parseFloat(getComputedStyle(element).fontSize) * (element.getScreenCTM?.().a ?? 1);
  return {
    wider: Math.max(...[document.querySelector('main'), picture].map(part => part.scrollWidth - part.clientWidth)),
    smallest: Math.min(...[...picture.querySelectorAll('*')].filter(hasText).map(size)),
    coarse: [...picture.querySelectorAll('input[type=range]')].filter(input => input.clientWidth <= input.max - input.min)
      .map(input => input.closest('label').firstChild.textContent),
  };
})()"""

# What is drawn, element by element, and what the page draws in its place until the script runs.
ELEMENTS = """(svg => [...svg.querySelectorAll('*')].map(element => [
  element.localName, ...[...element.attributes].map(each => each.name + '=' + each.value),
  element.children.length > 0 ? '' : element.textContent].join(' ')))"""
STILL = """new DOMParser().parseFromString(PAGE, 'text/html').querySelector('[data-picture="NAME"] svg')"""

# What the slider over steps says.
STEP = "picture.querySelector('.stepper output').textContent"


class Picture:
    """A picture with controls in a page."""

    def __init__(self, page, name):
        self.page = page
        self.name = name
        self.press = page.press

    def evaluate(self, expression):
        """The value of a JavaScript expression with the element `picture`."""
        element = f"""document.querySelector('[data-picture="{self.name}"]')"""
        return self.page.evaluate(f"(picture => {expression})({element})")


def fits(picture):
    layout = picture.evaluate(LAYOUT)
    expect(f"{picture.name}: pixels off the screen", layout["wider"], 0)
    expect(f"{picture.name}: sliders with more values than pixels", layout["coarse"], [])
    if layout["smallest"] < SMALLEST_TEXT:
        sys.exit(f"{picture.name}: text of {layout['smallest']:.1f} px on a screen of {NARROW} px")


def fits_a_window(picture):
    """Whatever is chosen, the picture uses the page's width, and its controls are seen with it."""
    values = [picture.evaluate("picture.offsetHeight")]
    for end in ["min", "max"]:
        values.append(picture.evaluate(f"""[...picture.querySelectorAll('input[type=range]')].forEach(input => {{
          input.value = input.{end};
          input.dispatchEvent(new Event('input', {{ bubbles: true }}));
        }}) ?? picture.offsetHeight"""))
    if max(values) > HIGH:
        sys.exit(f"{picture.name}: {max(values)} px high, more than {HIGH}")
    unused = picture.evaluate("document.querySelector('main').clientWidth - picture.offsetWidth")
    expect(f"{picture.name}: pixels of the page's width that are not used", unused, 0)


def says_values_once(picture):
    """A slider says its value itself, and only the summary is announced besides."""
    announced = picture.evaluate("picture.querySelectorAll('[role=status], output:not([aria-live=off])').length")
    expect(f"{picture.name}: texts that are announced", announced, 1)


def prints(picture, path):
    """On paper there are no controls. A picture with steps is what the page shows without scripts, and others keep their
    colours."""
    has_steps = picture.evaluate("picture.querySelector('.stepper') !== null")
    picture.evaluate("addEventListener('beforeprint', () => { window.onPaper = picture.innerHTML; })")
    picture.page.print()
    page = f"new DOMParser().parseFromString({json.dumps(path.read_text())}, 'text/html')"
    still = f"""{page}.querySelector('[data-picture="{picture.name}"]').innerHTML"""
    is_still = picture.evaluate(f"window.onPaper === {still}")
    expect(f"{picture.name}: whether paper has what the page shows without scripts", is_still, has_steps)
    picture.page.emulate("print")
    controls = picture.evaluate("picture.querySelector('form')?.checkVisibility() ?? null")
    expect(f"{picture.name}: whether paper has controls", controls, False)
    coloured = "[...picture.querySelectorAll('.bar, .bar *, .cell, .example, td')]"
    lost = picture.evaluate(f"{coloured}.filter(each => getComputedStyle(each).printColorAdjust !== 'exact').length")
    expect(f"{picture.name}: parts without their colour on paper", lost, 0)
    picture.page.emulate()


def buttons(picture):
    """The names of the buttons that are shown."""
    return picture.evaluate("""[...picture.querySelectorAll('button')].filter(button => button.checkVisibility())
      .map(button => button.ariaLabel ?? button.textContent)""")


def summary(picture):
    return picture.evaluate("picture.querySelector('[role=status]').textContent")


def texts(picture, selector):
    return picture.evaluate(f"[...picture.querySelectorAll('{selector}')].map(element => element.textContent)")


def focus(picture, label):
    """Goes to a control with the Tab key."""
    picture.evaluate("picture.querySelector('input').focus()")
    for _ in range(10):
        if picture.evaluate(FOCUSED) == label:
            return
        picture.press("Tab")
    sys.exit(f"the Tab key does not reach the control {label}")


def heights(picture, label, last):
    """All heights of the picture from the first step of a stepper to the last. At each it fits the screen."""
    focus(picture, label)
    picture.press("Home")
    found = set()
    for step in range(last + 1):
        expect(f"{picture.name}: the step", picture.evaluate(STEP), f"{step} of {last}")
        fits(picture)
        found.add(picture.evaluate("picture.offsetHeight"))
        picture.press("ArrowRight")
    return found


def without_scripts(picture, path):
    """The second column of the table that a page has in the picture's place until its script runs."""
    table = re.search(rf'data-picture="{picture.name}".*?</table>', path.read_text(), re.DOTALL)[0]
    return re.findall(r"<tr><td.*?</td><td[^>]*>(.*?)</td>", table)


def draws_the_still(picture, path):
    """Until its script runs, the page shows what the script draws now."""
    drawn = picture.evaluate(f"{ELEMENTS}(picture.querySelector('svg'))")
    still = STILL.replace("PAGE", json.dumps(path.read_text())).replace("NAME", picture.name)
    expect("the drawing without scripts", picture.evaluate(f"{ELEMENTS}({still})"), drawn)


def expect(what, found, expected):
    if found != expected:
        sys.exit(f"{what}: {found}, expected {expected}")
