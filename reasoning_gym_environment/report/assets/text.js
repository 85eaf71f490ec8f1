// Text that comes from outside: it only ever becomes text nodes, and what hides in it is named.

// Characters that can't be seen, or that turn the direction of what follows. Joiners may stay.
const HIDDEN = /(?![\n\t\u200c\u200d])[\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Cn}\u2028\u2029]/gu;

const byId = (id) => document.getElementById(id);

/** Return an element with attributes and children; a string becomes a text node. */
function make(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

const SVG = "http://www.w3.org/2000/svg";

function makeSvg(tag, attributes, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

function makeButton(label, onClick, attributes = {}) {
  const button = make("button", { type: "button", ...attributes }, label);
  button.addEventListener("click", onClick);
  return button;
}

function codePoint(character) {
  return `U+${character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`;
}

/** Return a text on one line in which hidden characters are named. */
function line(text) {
  return String(text)
    .replace(/\s+/g, " ")
    .replace(HIDDEN, (each) => `⟨${codePoint(each)}⟩`);
}

/** Append a text in which hidden characters are named. */
function appendNamed(element, text) {
  let end = 0;
  for (const found of text.matchAll(HIDDEN)) {
    const name = make("span", { class: "hidden-character" }, codePoint(found[0]));
    element.append(text.slice(end, found.index), name);
    end = found.index + found[0].length;
  }
  element.append(text.slice(end));
}

/** Return a block of model text; spans `[start, end, class]` in order are marked. */
function modelText(text, spans = []) {
  const block = make("pre", { class: "model-text", tabindex: "0", dir: "auto" });
  let end = 0;
  for (const [start, stop, kind] of spans) {
    appendNamed(block, text.slice(end, start));
    const mark = make("mark", { class: kind });
    appendNamed(mark, text.slice(start, stop));
    block.append(mark);
    end = stop;
  }
  appendNamed(block, text.slice(end));
  return block;
}

const words = (name) => name.replaceAll("_", " ");
const whole = (value) => Math.round(value).toLocaleString("en-US");
const percent = (value, digits = 1) => `${(100 * value).toFixed(digits)}%`;
const decimal = (value) => (value === null || value === undefined ? "–" : value.toFixed(2));
/** Return a difference of shares in points. */
const points = (value) => `${value >= 0 ? "+" : "−"}${Math.abs(100 * value).toFixed(1)}`;
const plural = (count, noun) => `${whole(count)} ${noun}${count === 1 ? "" : "s"}`;

/** Return a large number in at most four characters, such as 1.2M. */
function short(value) {
  for (const [size, letter] of [
    [1e9, "B"],
    [1e6, "M"],
    [1e3, "k"],
  ]) {
    if (value >= size) return `${(value / size).toPrecision(value >= 100 * size ? 3 : 2)}${letter}`;
  }
  return whole(value);
}

function clock(seconds) {
  if (seconds === null) return "";
  return `${new Date(1000 * seconds).toISOString().slice(0, 19).replace("T", " ")} UTC`;
}

// A completion's parts, as `scoring/channels.py` finds them, whose table CHANNELS is.

const HARMONY = "<|channel|>";

/** Return the places of a pair of markers; those of the first channel in any letter case. */
function findTags(text, { opens, closes }, flags = "g") {
  const escape = (marker) => marker.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
  const pattern = new RegExp(`(${escape(opens)})|${escape(closes)}`, flags);
  return [...text.matchAll(pattern)];
}

/** Replace harmony's channels by think tags. */
function inThinkTags(text) {
  const begin = text.indexOf(HARMONY);
  const before = text.slice(0, begin).replace(/<\|start\|>assistant$/, "");
  const parts = text.slice(begin + HARMONY.length).split(HARMONY).map((message) => {
    const [header, ...content] = message.split("<|message|>");
    const written = content.join("<|message|>");
    const end = written.search(/<\|(?:end|return|call|start)\|>/);
    const body = end < 0 ? written : written.slice(0, end);
    if (header.trim().split(/\s+/)[0] === "final") return body;
    return `<think>${body.replace(/<\/?think>/gi, "")}${end < 0 ? "" : "</think>"}`;
  });
  return before + parts.join("");
}

/** Return a completion's thought and the rest, both without markers. */
function splitThought(text) {
  const [think, ...others] = CHANNELS;
  let tags = findTags(text, think, "gi");
  let first = tags.length ? tags[0].index : text.length;
  for (const channel of others) {
    const found = findTags(text, channel);
    if (found.length && found[0].index < first) {
      first = found[0].index;
      tags = found;
    }
  }
  const harmony = text.indexOf(HARMONY);
  if (harmony >= 0 && harmony < first) {
    text = inThinkTags(text);
    tags = findTags(text, think);
  }
  const thought = [];
  const outside = [];
  let begin = 0;
  let thinking = tags.length > 0 && tags[0][1] === undefined;
  for (const tag of tags) {
    (thinking ? thought : outside).push(text.slice(begin, tag.index));
    begin = tag.index + tag[0].length;
    thinking = tag[1] !== undefined;
  }
  (thinking ? thought : outside).push(text.slice(begin));
  return { thought: thought.join(""), rest: outside.filter(Boolean).join("\n") };
}

/** Return the spans between answer tags, or that of a rollout's answer in the last box. */
function answerSpans(text, answer, format) {
  const tagged = format === "boxed" ? [] : taggedSpans(text);
  const mayBeBoxed = format === "boxed" || format === "tags-or-boxed";
  if (tagged.length > 0 || !mayBeBoxed || answer === null) return tagged;
  const inBox = text.indexOf(answer, text.lastIndexOf("\\boxed"));
  const start = inBox < 0 ? text.lastIndexOf(answer) : inBox; // a box may be within the last one
  return start < 0 ? [] : [[start, start + answer.length, "answer"]];
}

function taggedSpans(text) {
  return [...text.matchAll(/<answer>([\s\S]*?)<\/answer>/gi)].map((found) => {
    const start = found.index + "<answer>".length;
    return [start, start + found[1].length, "answer"];
  });
}
