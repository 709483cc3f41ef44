"use strict";

/* What several pictures draw: lines and words, keys to their colours, tables of named values, and bars of memory. */
{
  const { html, svg } = pictures;

  /** To a tenth of a pixel, so that a drawing that a page has without scripts stays short. */
  const rounded = value => Math.round(value * 10) / 10;
  pictures.rounded = rounded;

  pictures.line = (kind, [x1, y1], [x2, y2]) =>
    svg("line", { class: kind, x1: rounded(x1), y1: rounded(y1), x2: rounded(x2), y2: rounded(y2) });

  pictures.text = (kind, [x, y], words) => svg("text", { class: kind, x: rounded(x), y: rounded(y) }, words);

  /** A small example of what a colour or a border means. */
  pictures.example = kind => html("span", { class: `example ${kind}` });

  /** A bar for the parts of a device's memory, of which `most` fills the width, and their sum. `words` writes a part and its
      bytes, `size` the sum. */
  pictures.memoryBar = (name, bytes, most, words, size) => {
    const parts = Object.keys(bytes);
    const segments = parts.filter(part => bytes[part] > 0)
      .map(part => html("span", { class: part, style: `width: ${100 * bytes[part] / most}%` }));
    const total = size(parts.reduce((sum, part) => sum + bytes[part], 0));
    return html("div", { class: "device" },
      html("p", {}, html("span", {}, name), html("span", { class: "total" }, total)),
      html("div", { class: "bar", "aria-hidden": "true" }, ...segments),
      html("p", { class: "amounts" }, ...parts.map(part => html("span", {}, pictures.example(part), ` ${words(part)}`))));
  };

  /** A table with a row for each value. `name` is a text, or a list of texts and elements. */
  pictures.rowsTable = rows => html("table", {}, html("tbody", {}, ...rows.map(({ name, words, kind = "" }) =>
    html("tr", { class: kind }, html("th", { scope: "row" }, ...[name].flat()), html("td", {}, words)))));
}
