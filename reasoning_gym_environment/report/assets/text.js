// Model text on the page. It only ever becomes text nodes: nothing in it is markup.

// Characters that can't be seen, or that turn the direction of what follows. Joiners may stay.
const HIDDEN = /(?![\n\t\u200c\u200d])[\p{Cc}\p{Cf}\p{Cs}\u2028\u2029]/gu;

/** An element with a class, attributes and children; a string becomes a text node. */
function make(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

function named(character) {
  const code = character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0");
  return make("span", { class: "hidden-character" }, `U+${code}`);
}

/** A block of model text in which hidden characters are named. */
function modelText(text) {
  const block = make("pre", { class: "model-text", tabindex: "0", dir: "auto" });
  let end = 0;
  for (const found of text.matchAll(HIDDEN)) {
    block.append(text.slice(end, found.index), named(found[0]));
    end = found.index + found[0].length;
  }
  block.append(text.slice(end));
  return block;
}

/** A short text for a line of the list: hidden characters become a dot. */
function lineOf(text) {
  return text.replace(HIDDEN, "·").replace(/\s+/g, " ");
}

function readJson(id) {
  return JSON.parse(document.getElementById(id).textContent);
}

/** A chunk of texts: JSON, deflated, in base64. */
async function unpack(packed) {
  const bytes = Uint8Array.from(atob(packed), (character) => character.charCodeAt(0));
  const plain = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return JSON.parse(await new Response(plain).text());
}
