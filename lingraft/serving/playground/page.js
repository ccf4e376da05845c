// The page: which models there are, what a person picked and wrote, and a column of answers for each language.

import { kindOf, labelsOf, MASK } from "./answers.js";
import { count, element, percent } from "./elements.js";
import { carry, infer, metadata, models, Refusal } from "./protocol.js";

const TITLES = { text: "Text", text_pair: "Second text", question: "Question", context: "Context" };
const LINES = { question: 2, context: 8 };
const ALL = "all";
const FIRST_PICKS = 3;
const TASKS = { "fill-mask": "Fill in a missing word", embeddings: "Compare meanings" };
const NAMES = new Intl.DisplayNames("en", { type: "language" });

const at = (id) => document.getElementById(id);
const picked = new Set();
const written = new Map();
let facts = null;
let asking = new AbortController();
let tried = false;

/** A language's English name where its code is one that the browser knows. */
function nameOf(language) {
  if (language === facts.parameters.detects) return "Detect the language";
  try {
    return NAMES.of(language);
  } catch {
    return language;
  }
}

/** The code for `lang` attributes; none where the language is to be found out. */
function spoken(language) {
  return language === ALL || language === facts.parameters.detects ? null : language;
}

async function start() {
  const names = await models();
  at("task").replaceChildren(...names.map((name) => element("option", { value: name }, TASKS[name] ?? name)));
  await choose();
  at("question").hidden = at("about").hidden = false;
}

/** Show the chosen task, with what was picked and written kept as far as it fits. */
async function choose() {
  const task = at("task").value;
  const found = await metadata(task);
  if (task !== at("task").value) return;
  asking.abort();
  facts = found;
  for (const language of picked) if (!offered().includes(language)) picked.delete(language);
  if (!picked.size) suggested().forEach((language) => picked.add(language));
  at("answers").replaceChildren();
  at("comparison").replaceChildren();
  at("status").replaceChildren();
  at("truncate-option").hidden = !facts.parameters.request_parameters.truncate;
  at("does").textContent = kindOf(facts).does(facts);
  showLanguages();
  showTexts();
  showFacts();
}

/** A language may have been added to the running server, or taken away, while the person looked elsewhere. */
async function refresh() {
  const found = await metadata(facts.name);
  if (found.name !== facts.name || `${found.parameters.languages}` === `${facts.parameters.languages}`) return;
  const held = document.activeElement.id;
  await choose();
  at(held)?.focus();
}

/** The language that the model was trained in, then the others by name; last, to detect it. */
function offered() {
  const { languages, source_language: source, detects } = facts.parameters;
  const others = languages.filter((language) => language !== source);
  others.sort((one, other) => nameOf(one).localeCompare(nameOf(other), "en"));
  return [...(languages.includes(source) ? [source] : []), ...others, ...(detects ? [detects] : [])];
}

/** Languages to begin with: those that there are examples of, if there are any. */
function suggested() {
  const shown = offered().filter((language) => language in facts.parameters.examples);
  return (shown.length ? shown : offered()).slice(0, FIRST_PICKS);
}

/** What stands in a field: what a person wrote there, or else the example. */
function textOf(input, language) {
  const { examples, source_language: source } = facts.parameters;
  return written.get(`${input}-${language}`) ?? examples[language === ALL ? source : language]?.[input] ?? "";
}

/** Picked languages in the order in which they are offered. */
function columns() {
  return offered().filter((language) => picked.has(language));
}

function showLanguages() {
  const chips = offered().map((language) => {
    const box = element("input", { type: "checkbox", id: `pick-${language}`, checked: picked.has(language) });
    box.addEventListener("change", () => {
      picked[box.checked ? "add" : "delete"](language);
      showTexts();
    });
    return element("label", { class: "chip" }, box, ` ${nameOf(language)}`);
  });
  at("languages").replaceChildren(...chips);
}

function showTexts() {
  const groups = at("same").checked ? [ALL] : columns();
  at("texts").replaceChildren(...groups.map(group));
  at("ask").disabled = !groups.length || !picked.size;
}

function group(language) {
  const title = language === ALL ? "All languages" : nameOf(language);
  const fields = inputs().flatMap((input) => field(language, input, title));
  return element("fieldset", {}, element("legend", {}, title), ...fields);
}

/** Names of the model's texts. */
function inputs() {
  return facts.inputs.map((each) => each.name).filter((name) => name !== "language");
}

function field(language, input, title) {
  const first = input === "text" && inputs().includes("text_pair");
  const name = first ? "First text" : (TITLES[input] ?? input);
  const id = `${input}-${language}`;
  const area = element("textarea", {
    id,
    rows: LINES[input] ?? 4,
    dir: "auto",
    lang: spoken(language),
    placeholder: spoken(language) ? `Write or paste a text in ${title}` : "Write or paste a text",
    spellcheck: "false",
    autocomplete: "off",
  });
  area.value = textOf(input, language);
  area.addEventListener("input", () => written.set(id, area.value));
  return [element("label", { for: id }, name), area, ...(kindOf(facts).masked ? [masker(area, title)] : [])];
}

function masker(area, title) {
  const does = "Put a gap here";
  const button = element("button", { type: "button", class: "small", "aria-label": `${does}: ${title}` }, does);
  button.addEventListener("click", () => {
    area.setRangeText(MASK, area.selectionStart, area.selectionEnd, "end");
    area.dispatchEvent(new Event("input"));
    area.focus();
  });
  return button;
}

/** The text for all is the first one that there is; afterwards, languages without a text of their own keep it. */
function share() {
  const shared = at("same").checked;
  for (const input of inputs()) {
    const own = columns().map((language) => [`${input}-${language}`, textOf(input, language)]);
    const all = `${input}-${ALL}`;
    if (shared) written.set(all, [written.get(all), ...own.map(([, text]) => text)].find(Boolean) ?? "");
    else own.filter(([, text]) => !text).forEach(([id]) => written.set(id, written.get(all)));
  }
  showTexts();
}

function showFacts() {
  const { precision, fingerprint, max_tokens, max_characters, source_language: source, labels } = facts.parameters;
  const told = {
    Model: facts.name,
    "Trained in": nameOf(source),
    "Longest text": `${count(max_characters)} characters; it reads ${count(max_tokens)} pieces of words at once`,
    ...(labels.length && { Labels: labelsOf(facts).join(", ") }),
    Precision: precision,
    Fingerprint: fingerprint,
  };
  const rows = Object.entries(told).flatMap(([name, value]) => [
    element("dt", {}, name),
    element("dd", {}, element("bdi", {}, value)),
  ]);
  at("facts").replaceChildren(...rows);
}

/** Ask for every language in a request of its own, all at once, so that each is answered or refused by itself. */
async function answer() {
  asking.abort();
  asking = new AbortController();
  const { signal } = asking;
  const sections = columns().map(waiting);
  at("answers").replaceChildren(...sections);
  at("comparison").replaceChildren();
  at("status").replaceChildren("Asking …");
  const began = performance.now();
  const told = await Promise.all(columns().map((language, place) => fill(sections[place], language, signal)));
  const answered = told.filter((each) => each.outputs);
  if (answered.length > 1) at("comparison").replaceChildren(...[kindOf(facts).compare?.(answered)].filter(Boolean));
  at("status").replaceChildren(
    `${answered.length} of ${told.length} answered in ${milliseconds(performance.now() - began)}.`,
    element("span", { class: "unseen" }, told.map(({ title, summary }) => ` ${title}: ${summary}.`).join("")),
  );
}

function waiting(language) {
  const name = nameOf(language);
  const attributes = { class: "answer waiting", "aria-busy": "true", "aria-label": name };
  return element("section", attributes, heading(name, "asking …"));
}

/** One language's answer, or why there is none. */
async function fill(section, language, signal) {
  const source = at("same").checked ? ALL : language;
  const texts = Object.fromEntries(inputs().map((input) => [input, textOf(input, source)]));
  const parameters = at("truncate-option").hidden ? {} : { truncate: at("truncate").checked };
  try {
    const { outputs, elapsed_ms } = await infer(facts.name, { ...texts, language }, parameters, signal);
    const found = outputs.language[0];
    const sure = percent(outputs.language_confidence[0]);
    const title = found === language ? nameOf(found) : `${nameOf(found)} (detected, ${sure} sure)`;
    const { summary, nodes } = kindOf(facts).show({ texts, outputs, language: found, facts });
    const doubts = doubtsOf(outputs);
    const doubt = doubts ? [element("p", { class: "doubt" }, doubts)] : [];
    section.replaceChildren(heading(title, milliseconds(elapsed_ms)), ...doubt, ...nodes);
    return { title, summary: [summary, doubts].filter(Boolean).join(". "), outputs };
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
    if (error.status === 401) askForToken();
    section.replaceChildren(heading(nameOf(language), "no answer"), element("p", { class: "failed" }, error.message));
    return { title: nameOf(language), summary: error.message };
  } finally {
    section.removeAttribute("aria-busy");
    section.classList.remove("waiting");
  }
}

/** Why an answer may mean little: the text is not in the language that the model took it for. */
function doubtsOf({ unknown_share: [unknown], detected_language: [other] }) {
  const unread = unknown > facts.parameters.unknown_limit;
  return [
    unread && `The model cannot read ${Math.round(100 * unknown)}% of this text: do not rely on the answer.`,
    other && `The text looks like ${nameOf(other)}.`,
  ].filter(Boolean).join(" ");
}

function heading(title, note) {
  return element("h2", {}, title, " ", element("span", { class: "quiet" }, note));
}

function milliseconds(elapsed_ms) {
  return `${elapsed_ms.toFixed(elapsed_ms < 10 ? 1 : 0)} ms`;
}

function askForToken() {
  at("access").hidden = false;
  at("token").setAttribute("aria-invalid", tried);
  at("token").focus();
}

/** Do something that asks the server, and show what it says if it refuses. */
async function attempt(work) {
  at("trouble").replaceChildren();
  try {
    await work();
  } catch (error) {
    if (error.name === "AbortError") return;
    at("status").replaceChildren();
    // Before a person has given a token, that one is wanted is no trouble: the form says it.
    if (error.status !== 401 || tried) at("trouble").replaceChildren(element("p", { class: "failed" }, error.message));
    if (!(error instanceof Refusal)) throw error;
    if (error.status === 401) askForToken();
  }
}

at("task").addEventListener("change", () => attempt(choose));
at("same").addEventListener("change", share);
at("question").addEventListener("submit", (event) => {
  event.preventDefault();
  attempt(answer);
});
at("question").addEventListener("keydown", (event) => {
  const sent = event.key === "Enter" && (event.ctrlKey || event.metaKey);
  if (sent && !at("ask").disabled) at("question").requestSubmit(at("ask"));
});
at("access").addEventListener("submit", (event) => {
  event.preventDefault();
  const given = at("token").value;
  at("token").value = "";
  at("access").hidden = tried = true;
  attempt(async () => {
    carry(given);
    await (facts ? answer : start)();
  }).then(() => at(at("access").hidden ? "task" : "token").focus());
});
window.addEventListener("focus", () => facts && attempt(refresh));
attempt(start);
