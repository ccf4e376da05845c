// Making elements. What a person or the server wrote only ever becomes text: strings are appended as text nodes.

const COUNTS = new Intl.NumberFormat("en");
const SHARES = new Intl.NumberFormat("en", { style: "percent", minimumFractionDigits: 1, maximumFractionDigits: 1 });

/** An element with attributes; those that are null or false are left out, true ones stand without a value. */
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === true) made.setAttribute(name, "");
    else if (value !== null && value !== false) made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

/** 0.931 as 93.1%. */
export function percent(share) {
  return SHARES.format(share);
}

/** 20000 as 20,000. */
export function count(whole) {
  return COUNTS.format(whole);
}

/** A list of names, each with a share of 1 as a number and as a bar, and perhaps a short note. */
export function bars(rows, { best = false } = {}) {
  return element("ol", { class: "bars" }, ...rows.map((row) => bar(row, best)));
}

function bar({ name, share, note }, best) {
  const line = element("div", { class: "bar", "aria-hidden": "true" });
  line.style.setProperty("--share", Math.min(1, Math.max(0, share)));
  const named = element("span", { class: "name" }, element("bdi", {}, name));
  if (note) named.append(" ", element("bdi", { class: "kind" }, note));
  const number = element("span", { class: "number" }, percent(share));
  return element("li", { class: best ? "best" : null }, named, " ", number, line);
}

/**
 * A text with spans of it marked.
 *
 * @param {string} text
 * @param {{start: number, end: number, note?: string, hue?: number, shown?: string}[]} spans - in order; places are
 *   counted in Unicode code points, as the server counts them, where JavaScript counts UTF-16 units; `shown` stands in
 *   place of what is there.
 * @param {string?} language - of the text, for fonts and voices.
 */
export function marked(text, spans, language) {
  const points = Array.from(text);
  const told = element("p", { class: "told", dir: "auto", lang: language });
  let place = 0;
  for (const { start, end, note, hue = 0, shown } of spans) {
    told.append(points.slice(place, start).join(""));
    told.append(element("mark", { class: `hue-${hue}` }, shown ?? points.slice(start, end).join("")));
    if (note) told.append(element("bdi", { class: "kind" }, note));
    place = end;
  }
  told.append(points.slice(place).join(""));
  return told;
}
