"use strict";

/* Controls: each has a row for the form, the value that is chosen in it, and `show`, which writes that value beside it. */
{
  const { html } = pictures;

  /** A labelled slider. What `words` makes of it is no live region, because the slider says its value itself. */
  pictures.range = (label, attributes, words) => {
    const input = html("input", { type: "range", min: 0, ...attributes });
    const shown = html("output", { "aria-live": "off" });
    const show = () => {
      shown.textContent = words(input);
      input.setAttribute("aria-valuetext", shown.textContent);
    };
    return { input, show, row: html("label", {}, html("span", {}, label), input, shown) };
  };

  /** A labelled slider over values. `words` writes the chosen one beside it. */
  pictures.choice = (label, values, chosen, words = String) => {
    const attributes = { max: values.length - 1, value: values.indexOf(chosen) };
    const { input, show, row } = pictures.range(label, attributes, ({ valueAsNumber }) => words(values[valueAsNumber]));
    return { value: () => values[input.valueAsNumber], show, row };
  };

  /** A labelled slider over the whole numbers from `least` to `most`. */
  pictures.slider = (label, least, most, chosen) => {
    const values = Array.from({ length: most - least + 1 }, (_, index) => least + index);
    return pictures.choice(label, values, chosen);
  };

  /** A labelled box to tick. */
  pictures.checkbox = (label, isChecked) => {
    const input = html("input", { type: "checkbox" });
    input.checked = isChecked;
    const row = html("label", {}, html("span", {}, label), input);
    return { value: () => input.checked, show: () => {}, row };
  };

  /** A labelled list of values to choose from. */
  pictures.options = (label, values, chosen) => {
    const select = html("select", {}, ...values.map(value => html("option", {}, value)));
    select.value = chosen;
    const row = html("label", {}, html("span", {}, label), select);
    return { value: () => select.value, show: () => {}, row };
  };
}
