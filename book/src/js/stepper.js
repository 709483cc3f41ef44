"use strict";

/* A control for pictures that change step by step. */
{
  const { html } = pictures;
  // How long a step is shown while a picture plays.
  const SECONDS_PER_STEP = 1.5;

  /** A labelled slider over the steps from 0 to `last(values)` of the controls before it. Buttons go to the first step, the
      previous one, the next or the last, and play all that follow. Playing stops at the last step. Readers who prefer
      reduced motion are not offered it. */
  pictures.stepper = (label, last) => {
    const { input, show, row } = pictures.range(label, { value: 0 }, ({ value, max }) => `${value} of ${max}`);
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
      const made = html("button", { type: "button", ...attributes }, words);
      made.addEventListener("click", press);
      return made;
    };
    const jump = (words, name, step) => button(words, { "aria-label": name, title: name }, () => {
      pause();
      go(step());
    });
    const play = button("play", { class: "play" }, () => timer === null ? start() : pause());
    play.hidden = matchMedia("(prefers-reduced-motion: reduce)").matches;
    const buttons = html("span", { class: "buttons" },
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
    return { value, show, row: html("div", { class: "stepper" }, row, buttons) };
  };
}
