"use strict";

/* What the pictures with controls share. A picture is a function from the values of its controls to what is shown, so
   nothing moves until the reader moves it. Without scripts the page keeps what it shows in the picture's place. */
const pictures = {};

{
  const SVG = "http://www.w3.org/2000/svg";

  const filled = (element, attributes, children) => {
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.append(...children);
    return element;
  };

  /** An HTML element with attributes and children. */
  pictures.html = (name, attributes = {}, ...children) =>
    filled(document.createElement(name), attributes, children);

  /** An element of an SVG drawing with attributes and children. */
  pictures.svg = (name, attributes = {}, ...children) =>
    filled(document.createElementNS(SVG, name), attributes, children);

  /** What a slider's value is written into. The slider says it itself, and once is enough. */
  const output = () => pictures.html("output", { "aria-live": "off" });

  /** A labelled slider over values. `words` writes the chosen one beside it. */
  pictures.choice = (label, values, chosen, words = String) => {
    const at = values.indexOf(chosen);
    const input = pictures.html("input", { type: "range", min: 0, max: values.length - 1, value: at });
    const shown = output();
    const value = () => values[input.valueAsNumber];
    const show = () => {
      shown.textContent = words(value());
      input.setAttribute("aria-valuetext", shown.textContent);
    };
    return { value, show, row: pictures.html("label", {}, pictures.html("span", {}, label), input, shown) };
  };

  /** A labelled slider over the whole numbers from `least` to `most`. */
  pictures.slider = (label, least, most, chosen) => {
    const values = Array.from({ length: most - least + 1 }, (_, index) => least + index);
    return pictures.choice(label, values, chosen);
  };

  /** A labelled box to tick. */
  pictures.checkbox = (label, isChecked) => {
    const input = pictures.html("input", { type: "checkbox" });
    input.checked = isChecked;
    const row = pictures.html("label", {}, pictures.html("span", {}, label), input);
    return { value: () => input.checked, show: () => {}, row };
  };

  /** A labelled list of values to choose from. */
  pictures.options = (label, values, chosen) => {
    const select = pictures.html("select", {}, ...values.map(value => pictures.html("option", {}, value)));
    select.value = chosen;
    const row = pictures.html("label", {}, pictures.html("span", {}, label), select);
    return { value: () => select.value, show: () => {}, row };
  };

  // How long a step is shown while a picture plays.
  const SECONDS_PER_STEP = 1.5;

  /** A labelled slider over the steps from 0 to `last(values)` of the controls before it. Buttons go to the first step, the
      previous one, the next or the last, and play all that follow. Playing stops at the last step. Readers who prefer
      reduced motion are not offered it. */
  pictures.stepper = (label, last) => {
    const input = pictures.html("input", { type: "range", min: 0, value: 0 });
    const shown = output();
    const at = () => input.valueAsNumber;
    const end = () => Number(input.max);
    let timer = null;
    const go = step => {
      input.value = step;
      input.dispatchEvent(new Event("input", { bubbles: true }));
    };
    const pause = () => {
      clearInterval(timer);
      timer = null;
      play.textContent = "play";
    };
    const advance = () => {
      go(at() + 1);
      if (at() === end()) pause();
    };
    const start = () => {
      play.textContent = "pause";
      timer = setInterval(advance, SECONDS_PER_STEP * 1000);
      // At the end it plays again from the beginning.
      if (at() === end()) go(0); else advance();
    };
    const button = (words, attributes, press) => {
      const made = pictures.html("button", { type: "button", ...attributes }, words);
      made.addEventListener("click", press);
      return made;
    };
    const jump = (words, name, step) => button(words, { "aria-label": name, title: name }, () => {
      pause();
      go(step());
    });
    const play = button("play", { class: "play" }, () => timer === null ? start() : pause());
    play.hidden = matchMedia("(prefers-reduced-motion: reduce)").matches;
    const buttons = pictures.html("span", { class: "buttons" },
      jump("«", "first", () => 0), jump("‹", "previous", () => at() - 1), play,
      jump("›", "next", () => at() + 1), jump("»", "last", end));
    // mdBook's own arrow keys would turn the page.
    buttons.addEventListener("keydown", event => {
      const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (by === undefined || event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return;
      event.preventDefault();
      event.stopPropagation();
      pause();
      go(at() + by);
    });
    const value = values => {
      input.max = last(values);
      return at();
    };
    const show = () => {
      shown.textContent = `${at()} of ${end()}`;
      input.setAttribute("aria-valuetext", shown.textContent);
    };
    const slider = pictures.html("label", {}, pictures.html("span", {}, label), input, shown);
    return { value, show, row: pictures.html("div", { class: "stepper" }, slider, buttons) };
  };

  /** Gives every picture of this name in the page its controls. `draw` returns a summary and the elements to show. */
  pictures.enhance = (name, controls, draw) => {
    for (const place of document.querySelectorAll(`[data-picture="${name}"]`)) enhance(place, controls(), draw);
  };

  const enhance = (place, controls, draw) => {
    const form = pictures.html("form", {}, ...Object.values(controls).map(control => control.row));
    const summary = pictures.html("p", { role: "status" });
    const shown = pictures.html("div");
    const update = () => {
      const values = {};
      for (const [key, control] of Object.entries(controls)) values[key] = control.value(values);
      const drawn = draw(values);
      for (const control of Object.values(controls)) control.show();
      summary.textContent = drawn.summary;
      shown.replaceChildren(...drawn.elements);
    };
    form.addEventListener("input", update);
    form.addEventListener("submit", event => event.preventDefault());
    update();
    const still = [...place.childNodes];
    const show = () => {
      place.classList.add("picture", "controlled");
      place.replaceChildren(form, summary, shown);
    };
    show();
    // Paper has no steps to go through: it gets what the page shows without scripts.
    if (form.querySelector(".stepper") === null) return;
    addEventListener("beforeprint", () => {
      place.classList.remove("controlled");
      place.replaceChildren(...still);
    });
    addEventListener("afterprint", show);
  };
}
