// Where the index and the texts come from: this file, or the server that follows a run.
//
// A source gives `first()`, `group(id)`, `comparison(before, after)` and `search(text, onProgress)`, a
// live one `next()` too. A search returns the identifiers of groups whose question has the text, and ID.N of rollouts.

const KEPT_CHUNKS = 8;

/** Return what a script element holds: JSON, deflated, in base64. */
async function unpack(packed) {
  const bytes = Uint8Array.from(atob(packed), (character) => character.charCodeAt(0));
  const plain = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return JSON.parse(await new Response(plain).text());
}

class FileSource {
  live = false;
  #chunks = [...document.querySelectorAll("script.chunk")];
  #unpacked = new Map();

  async first() {
    return unpack(byId("index").textContent);
  }

  async group(id) {
    const chunk = data.group.at[data.numberOf.get(id)];
    return chunk === null ? null : (await this.#unpack(chunk))[id];
  }

  comparison(before, after) {
    const own = data.pairs.find((pair) => pair.before === before && pair.after === after);
    return own ?? null;
  }

  async search(text, onProgress) {
    const found = [];
    const wanted = text.toLowerCase();
    for (const number of this.#chunks.keys()) {
      const rows = await unpack(this.#chunks[number].textContent);
      for (const [id, row] of Object.entries(rows)) found.push(...matchesIn(id, row, wanted));
      if (number % 8 === 7 && onProgress(number / this.#chunks.length) === false) return null;
    }
    return found;
  }

  async #unpack(chunk) {
    if (!this.#unpacked.has(chunk)) {
      if (this.#unpacked.size >= KEPT_CHUNKS)
        this.#unpacked.delete(this.#unpacked.keys().next().value);
      this.#unpacked.set(chunk, unpack(this.#chunks[chunk].textContent));
    }
    return this.#unpacked.get(chunk);
  }
}

function matchesIn(id, row, wanted) {
  const has = (message) => message.content.toLowerCase().includes(wanted);
  const prompt = row.rollouts[0].conversation.slice(0, -1);
  if (prompt.some((message) => message.role !== "system" && has(message))) return [id];
  const matching = row.rollouts.map((own, number) =>
    has(own.conversation.at(-1)) ? number + 1 : 0,
  );
  return matching.filter(Boolean).map((number) => `${id}.${number}`);
}

class HttpSource {
  live = true;
  #cursor = "";
  #search = {};

  async first() {
    return this.#batch("api/index");
  }

  async next() {
    return this.#batch(`api/index?since=${encodeURIComponent(this.#cursor)}`);
  }

  async group(id) {
    return this.#get(`api/group/${encodeURIComponent(id)}`);
  }

  /** Store a note; an empty one removes it. */
  async note(run, about, text) {
    await this.#ask("api/note", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ run, about, text }),
    });
  }

  async comparison(before, after) {
    return this.#get(`api/comparison?${new URLSearchParams({ before, after })}`);
  }

  async search(text, onProgress) {
    if (this.#search.text !== text) this.#search = { text, found: [], searched: 0 };
    const own = this.#search; // what was searched is searched once, however often something comes
    for (;;) {
      const part = await this.#get(`api/search?text=${encodeURIComponent(text)}&after=${own.searched}`);
      if (own !== this.#search) return null;
      own.found.push(...part.found);
      const ended = part.searched <= own.searched || part.searched >= part.of;
      own.searched = part.searched;
      if (ended) return own.found;
      if (onProgress(own.searched / part.of) === false) return null;
    }
  }

  async #batch(address) {
    const batch = await this.#get(address);
    this.#cursor = batch.cursor;
    if (batch.restart) this.#search = {};
    return batch;
  }

  async #get(address) {
    return (await this.#ask(address, {})).json();
  }

  async #ask(address, options) {
    const response = await fetch(address, { cache: "no-store", ...options }).catch(() => {
      throw new Error(data.ended || "The server doesn't answer."); // not "Failed to fetch"
    });
    if (response.ok) return response;
    const reply = await response.json().catch(() => ({}));
    throw new Error(reply.error ?? `${address.split("?")[0]}: ${response.status} ${response.statusText}`);
  }
}

const source =
  document.documentElement.dataset.source === "http" ? new HttpSource() : new FileSource();
