"use strict";

/* What the pictures with controls share. A picture is a function from the values of its controls to what is shown, so
   nothing moves until the reader moves it. Without scripts the page keeps what it shows in the picture's place. The page of
   the whole book loads this script with each chapter that has such pictures. */
globalThis.pictures ??= {};

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

  /** Gives every picture of this name in the page its controls. `draw` returns a summary and the elements to show. */
  pictures.enhance = (name, controls, draw) => {
    for (const place of document.querySelectorAll(`[data-picture="${name}"]`)) enhance(place, controls(), draw);
  };

  const enhance = (place, controls, draw) => {
    const form = pictures.html("form", {}, ...Object.values(controls).map(control => control.row));
    const summary = pictures.html("p", { role: "status" });
    const side = pictures.html("div", { class: "side" }, form, summary);
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
      place.replaceChildren(side, shown);
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
