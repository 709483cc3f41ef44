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

  /** A labelled slider over values. `words` writes the chosen one beside it. */
  pictures.choice = (label, values, chosen, words = String) => {
    const at = values.indexOf(chosen);
    const input = pictures.html("input", { type: "range", min: 0, max: values.length - 1, value: at });
    const shown = pictures.html("output");
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

  /** Gives every picture of this name in the page its controls. `draw` returns a summary and the elements to show. */
  pictures.enhance = (name, controls, draw) => {
    for (const place of document.querySelectorAll(`[data-picture="${name}"]`)) enhance(place, controls(), draw);
  };

  const enhance = (place, controls, draw) => {
    const form = pictures.html("form", {}, ...Object.values(controls).map(control => control.row));
    const summary = pictures.html("p", { role: "status" });
    const shown = pictures.html("div");
    const update = () => {
      const values = Object.fromEntries(Object.entries(controls).map(([key, control]) => [key, control.value()]));
      const drawn = draw(values);
      for (const control of Object.values(controls)) control.show();
      summary.textContent = drawn.summary;
      shown.replaceChildren(...drawn.elements);
    };
    form.addEventListener("input", update);
    form.addEventListener("submit", event => event.preventDefault());
    update();
    place.classList.add("controlled");
    place.replaceChildren(form, summary, shown);
  };
}
