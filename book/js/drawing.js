"use strict";

/* What several pictures draw: lines and words, keys to their colours, and tables of named values. */
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

  /** A table with a row for each value. `name` is a text, or a list of texts and elements. */
  pictures.rowsTable = rows => html("table", {}, html("tbody", {}, ...rows.map(({ name, words, kind = "" }) =>
    html("tr", { class: kind }, html("th", { scope: "row" }, ...[name].flat()), html("td", {}, words)))));
}
