// What each kind of model does, and how its answers are shown. A kind is recognised by an output that no other has.

import { bars, element, marked, percent } from "./elements.js";

export const MASK = "<mask>";
const HUES = 5;

/**
 * @typedef {object} Kind
 * @property {(facts: object) => string} does - what the model does, for people.
 * @property {(asked: object) => {summary: string, nodes: Node[]}} show - `asked` has texts, outputs, language, facts.
 * @property {((columns: {title: string, outputs: object}[]) => Node)?} compare - what is said of all columns together.
 * @property {boolean?} masked - whether texts hold masks.
 */

const KINDS = {
  probabilities: { show: labels, does: (facts) => `Chooses one of: ${labelsOf(facts).join(", ")}.` },
  answer: { show: passage, does: () => "Finds the answer to a question in a text." },
  entity: { show: entities, does: (facts) => `Finds names in a text: ${labelsOf(facts).join(", ")}.` },
  piece: { show: masks, masked: true, does: () => `Guesses the word behind each ${MASK}.` },
  embedding: { show: vector, compare: similarities, does: () => "Tells how close texts are in meaning." },
};
const NAMED = { PER: "person", LOC: "place", ORG: "organisation", MISC: "other name" };

/** A model's labels as people read them; tags as the kinds of names that they are of. */
export function labelsOf(facts) {
  const tags = facts.outputs.some(({ name }) => name === "entity");
  return (tags ? kindsOf(facts) : facts.parameters.labels).map((label) => read(label, facts));
}

function kindsOf({ parameters }) {
  const inside = parameters.labels.filter((label) => label !== "O");
  return [...new Set(inside.map((label) => label.replace(/^[BI]-/, "")))];
}

/** The kind of a model's answers. */
export function kindOf(facts) {
  const output = facts.outputs.map((each) => each.name).find((name) => Object.hasOwn(KINDS, name));
  return output ? KINDS[output] : { show: raw, does: () => "" };
}

/** A label or a kind of name as people read it: by the recipe's name for it, where it has one. */
function read(label, { parameters }) {
  return parameters.label_names[label] ?? NAMED[label] ?? label.replaceAll("_", " ");
}

function labels({ outputs, facts }) {
  const [shares] = outputs.probabilities;
  const rows = facts.parameters.labels.map((label, place) => ({ name: read(label, facts), share: shares[place] }));
  rows.sort((one, other) => other.share - one.share);
  return { summary: `${rows[0].name}, ${percent(rows[0].share)}`, nodes: [bars(rows, { best: true })] };
}

function passage({ texts, outputs, language }) {
  const [name, share] = [outputs.answer[0], outputs.probability[0]];
  const span = { start: outputs.start[0], end: outputs.end[0] };
  return {
    summary: `${name}, ${percent(share)}`,
    nodes: [bars([{ name, share }], { best: true }), marked(texts.context, [span], language)],
  };
}

function entities({ texts, outputs, language, facts }) {
  const kinds = kindsOf(facts);
  const found = outputs.entity.map((name, place) => ({
    name,
    note: read(outputs.kind[place], facts),
    share: outputs.score[place],
    start: outputs.start[place],
    end: outputs.end[place],
    hue: Math.max(0, kinds.indexOf(outputs.kind[place])) % HUES,
  }));
  const summary = found.map(({ name, note }) => `${name}, ${note}`).join("; ") || "no names";
  const list = found.length ? bars(found) : element("p", { class: "quiet" }, "No names found.");
  return { summary, nodes: [marked(texts.text, found, language), list] };
}

function masks({ texts, outputs, language }) {
  const bests = outputs.piece.map(([best]) => best);
  const spans = outputs.start.map((start, mask) => ({ start, end: start + MASK.length, shown: bests[mask] }));
  const lists = spans.flatMap((_, mask) => {
    const rows = outputs.piece[mask].map((name, place) => ({
      name,
      share: outputs.probability[mask][place],
      note: outputs.begins_word[mask][place] ? null : "part of a word",
    }));
    const title = spans.length > 1 ? `Gap ${mask + 1} of ${spans.length}` : "Best guesses";
    return [element("h3", {}, title), bars(rows, { best: true })];
  });
  const summary = bests.map((best, mask) => `${best}, ${percent(outputs.probability[mask][0])}`).join("; ");
  return { summary, nodes: [marked(texts.text, spans, language), ...lists] };
}

function vector({ outputs }) {
  const said = `The model describes this text by ${outputs.embedding[0].length} numbers.`;
  return { summary: said, nodes: [element("p", { class: "quiet" }, said)] };
}

function similarities(columns) {
  const vectors = columns.map(({ outputs }) => outputs.embedding[0]);
  const heads = columns.map(({ title }) => element("th", { scope: "col" }, title));
  const rows = columns.map(({ title }, row) => {
    const cells = vectors.map((other) => cell(cosine(vectors[row], other)));
    return element("tr", {}, element("th", { scope: "row" }, title), ...cells);
  });
  const caption = "How close the texts are in meaning: 1 is the same, 0 is unrelated";
  const table = element(
    "table", {},
    element("caption", {}, caption),
    element("thead", {}, element("tr", {}, element("td"), ...heads)),
    element("tbody", {}, ...rows),
  );
  return element("div", { class: "wide", role: "region", tabindex: "0", "aria-label": caption }, table);
}

function cell(similarity) {
  const made = element("td", {}, similarity.toFixed(3));
  made.style.setProperty("--share", Math.max(0, similarity));
  return made;
}

function cosine(one, other) {
  const product = (left, right) => left.reduce((sum, value, place) => sum + value * right[place], 0);
  return product(one, other) / Math.sqrt(product(one, one) * product(other, other));
}

function raw({ outputs }) {
  return { summary: "answered", nodes: [element("pre", { tabindex: "0" }, JSON.stringify(outputs, null, 2))] };
}
