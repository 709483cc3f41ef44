"use strict";

/* Numbers for controls, and times and sizes in words. */
{
  /** 1, 2, 5, 10, 20 … times `least`, up to `most`. */
  pictures.roundNumbers = (least, most) => {
    const decades = Array.from({ length: 20 }, (_, power) => 10 ** power);
    return decades.flatMap(decade => [1, 2, 5].map(digit => digit * decade * least)).filter(value => value <= most);
  };

  const inUnits = (value, units) => {
    const [size, unit] = units.find(([size]) => value >= size * 0.9995) ?? units.at(-1);
    return `${Number((value / size).toPrecision(3)).toLocaleString("en")} ${unit}`;
  };

  /** Seconds with three digits. */
  pictures.time = seconds => inUnits(seconds, [[1, "s"], [1e-3, "ms"], [1e-6, "µs"]]);

  /** Bytes with three digits, in decimal units. */
  pictures.size = bytes => inUnits(bytes, [[1e9, "GB"], [1e6, "MB"], [1e3, "kB"]]);
}
