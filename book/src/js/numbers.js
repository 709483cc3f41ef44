"use strict";

/* Numbers for controls; sums; and numbers of things, times and sizes in words. */
{
  /** 1, 2, 5, 10, 20 … times `least`, up to `most`. */
  pictures.roundNumbers = (least, most) => {
    const decades = Array.from({ length: 20 }, (_, power) => 10 ** power);
    return decades.flatMap(decade => [1, 2, 5].map(digit => digit * decade * least)).filter(value => value <= most);
  };

  pictures.MIB = 2 ** 20;

  pictures.sum = numbers => numbers.reduce((total, number) => total + number, 0);

  /** A number, of things if they have a name. */
  pictures.count = (number, noun) =>
    number.toLocaleString("en") + (noun === undefined ? "" : ` ${noun}${number === 1 ? "" : "s"}`);

  const inUnits = (value, units) => {
    const [size, unit] = units.find(([size]) => value >= size * 0.9995) ?? units.at(-1);
    return `${pictures.count(Number((value / size).toPrecision(3)))} ${unit}`;
  };

  /** Seconds with three digits. */
  pictures.time = seconds => inUnits(seconds, [[1, "s"], [1e-3, "ms"], [1e-6, "µs"]]);

  /** Bytes with three digits, in decimal units, as networks are measured. */
  pictures.decimalSize = bytes => inUnits(bytes, [[1e9, "GB"], [1e6, "MB"], [1e3, "kB"]]);

  const BINARY = [["GiB", 2 ** 30], ["MiB", pictures.MIB], ["KiB", 2 ** 10]];

  /** Bytes with three digits, in binary units, as report::size writes them. */
  pictures.binarySize = bytes => {
    const unit = BINARY.find(([, least]) => bytes >= least);
    if (unit === undefined) return `${bytes} B`;
    const amount = bytes / unit[1];
    const digits = amount < 9.995 ? 2 : amount < 99.95 ? 1 : 0;
    return `${amount.toFixed(digits)} ${unit[0]}`;
  };
}
