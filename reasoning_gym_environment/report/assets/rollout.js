// One rollout in full, or all rollouts of its group side by side.

const RESCORING = [
  "max_token_length",
  "answer_format",
  "score_mode",
  "solved_threshold",
  "length_penalty_start",
  "verify_timeout",
];
const MOST_CELLS = 4_000_000; // pairs of words that a comparison of two texts may look at

let shownGroup = { id: null, row: null };

async function rowOfGroup(id) {
  if (shownGroup.id !== id) shownGroup = { id, row: await source.group(id) };
  return shownGroup.row;
}

async function showDetail() {
  const detail = byId("detail");
  const rollout = openedRollout();
  if (rollout === undefined) {
    const text = state.rollout
      ? "This rollout is not in these files."
      : list.found.length
        ? "Select a rollout."
        : "";
    return detail.replaceChildren(make("p", { class: "soft" }, text));
  }
  const group = data.groupOf[rollout];
  let row;
  try {
    row = await rowOfGroup(data.group.id[group]);
  } catch (error) {
    return detail.replaceChildren(
      make("p", { class: "health error" }, `The texts can't be loaded: ${error.message}`),
    );
  }
  if (openedRollout() !== rollout) return undefined; // another one was selected
  if (!row)
    return detail.replaceChildren(
      make("p", { class: "soft" }, "This page holds no texts of this group. `watch` shows all."),
    );
  const number = rollout - data.first[group];
  const folded = new Map(
    [...detail.querySelectorAll("details")].map((each) => [each.dataset.key, each.open]),
  );
  const focused = detail.contains(document.activeElement)
    ? document.activeElement.dataset.key
    : null;
  const parts = [
    navigation(rollout),
    heading(group, row),
    siblings(group, rollout),
    actions(rollout, row, number),
  ];
  const note = noteOn(data.group.run[group], idOf(rollout));
  if (note) parts.push(make("p", { class: "note" }, make("b", {}, "Note: "), make("bdi", {}, line(note))));
  if (state.together) parts.push(...prompts(row), together(row, number));
  else parts.push(...alone(row, number));
  detail.replaceChildren(...parts);
  for (const each of detail.querySelectorAll("details"))
    each.open = folded.get(each.dataset.key) ?? each.open;
  if (focused) detail.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus();
  return undefined;
}

function navigation() {
  const place =
    list.place < 0 ? "not in the list" : `${whole(list.place + 1)} of ${whole(list.found.length)}`;
  return make(
    "div",
    { class: "bar-of-buttons" },
    makeButton("Back to the table", () => byId("rollout-table").focus(), { "data-key": "back" }),
    makeButton("‹ Previous", () => choose(Math.max(0, list.place - 1)), {
      "data-key": "previous",
      title: "k",
    }),
    makeButton("Next ›", () => choose(list.place + 1), { "data-key": "next", title: "j" }),
    make("span", { class: "soft" }, place),
  );
}

function heading(group, row) {
  const parts = [taskOf(group).category, line(runOf(group).name)];
  if (row.recipe.level !== null) parts.push(`level ${row.recipe.level}`);
  if (row.difficulty !== undefined && row.difficulty !== null)
    parts.push(`difficulty ${row.difficulty}`);
  if (data.group.asked_again[group]) parts.push("asked again");
  if (row.fault) parts.push("faulty item");
  if (data.group.time[group] !== null) parts.push(clock(data.group.time[group]));
  parts.push(`seed ${row.recipe.seed}`);
  return make(
    "header",
    {},
    make("h3", {}, make("bdi", {}, line(taskOf(group).name))),
    make("span", { class: "soft" }, parts.join(" · ")),
  );
}

/** A button for each rollout of the same problem. */
function siblings(group, current) {
  const buttons = rolloutsOf(group).map((rollout, number) => {
    const status = words(statusOf(rollout));
    const button = makeButton("", () => openSibling(rollout, true), {
      "aria-current": rollout === current,
      "aria-label": `Rollout ${number + 1}: ${status}, reward ${decimal(data.rollout.reward[rollout])}`,
      "data-key": `sibling ${number}`,
    });
    button.append(
      make("span", { class: `dot ${kindOf(statusOf(rollout))}` }),
      decimal(data.rollout.reward[rollout]),
    );
    return button;
  });
  return make(
    "div",
    { class: "siblings", role: "group", "aria-label": "Rollouts of the same problem" },
    ...buttons,
  );
}

async function openSibling(rollout, push = false) {
  list.place = list.found.indexOf(rollout);
  if (list.place >= 0) keepInView();
  else drawRows();
  await openRollout(idOf(rollout), push);
}

function chooseSibling(step) {
  const rollout = openedRollout();
  if (rollout === undefined) return;
  const own = rolloutsOf(data.groupOf[rollout]);
  const next = own[own.indexOf(rollout) + step];
  if (next !== undefined) openSibling(next);
}

function toggleTogether() {
  change({ together: state.together ? "" : "1" });
}

function actions(rollout, row, number) {
  const box = make("div", { class: "bar-of-buttons" });
  const said = make("span", { class: "soft", role: "status" });
  const own = { ...row, rollouts: [row.rollouts[number]] };
  const copy = async (text, what) => {
    said.textContent = (await copied(text)) ? `${what} copied` : `${what} can't be copied here`;
  };
  const side = makeButton("Side by side", toggleTogether, {
    "aria-pressed": String(Boolean(state.together)),
    "data-key": "together",
    title: "s",
  });
  if (row.rollouts.length > 1) box.append(side);
  const address = `${location.href.split("#")[0]}#rollout=${idOf(rollout)}`;
  box.append(
    makeButton("Copy the link", () => copy(address, "Link"), { "data-key": "link" }),
    makeButton("Copy as JSON", () => copy(asciiJson(own), "JSON"), { "data-key": "json" }),
  );
  const rescore = makeButton(
    "Copy the command that scores it again",
    () => copy(rescoringCommand(own), "Command"),
    { "data-key": "rescore" },
  );
  if (isCut(own)) {
    rescore.disabled = true;
    rescore.title = "This page holds a part of the text alone.";
  }
  box.append(rescore, noteButton(data.group.run[data.groupOf[rollout]], idOf(rollout)), said);
  return box;
}

const isCut = (row) => Boolean(row.cut);

async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = make("textarea", { "aria-label": "Text to copy" });
    area.value = text;
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }
}

/** Return JSON of ASCII characters without a single quote: safe in a shell's single quotes. */
function asciiJson(value) {
  return JSON.stringify(value).replace(
    /[^\x20-\x7e]|'/g,
    (each) => `\\u${each.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
}

function rescoringCommand(row) {
  const settings = RESCORING.filter((name) => isPlain(row.scoring?.[name])).map(
    (name) => `--env.${name} ${row.scoring[name]}`,
  );
  const rescore = ["reasoning-gym-environment rescore --force rollout.jsonl", ...settings].join(
    " ",
  );
  return `printf '%s\\n' '${asciiJson(row)}' > rollout.jsonl && ${rescore}`;
}

/** Only numbers, switches and words go into a command. */
function isPlain(value) {
  return (
    typeof value === "number" ||
    typeof value === "boolean" ||
    (typeof value === "string" && /^[a-z_]+(-[a-z_]+)*$/.test(value))
  );
}

function alone(row, number) {
  const own = row.rollouts[number];
  return [
    outcome(own, row.scoring?.score_mode ?? null),
    answers(own, row.oracle),
    ...prompts(row),
    completion(own, row.scoring?.answer_format),
  ];
}

function explainReward(own, mode) {
  if (own.finish_reason === "error") return "The server gave no completion.";
  if (own.status === "unscored") {
    return [
      "The verifier could not score this answer.",
      "Its reward is the mean of the other rollouts in the group, and its advantage is zero.",
    ].join(" ");
  }
  const product = `× length factor ${decimal(own.length_factor)} = reward ${decimal(own.score)}.`;
  const factor = own.length_factor ?? 1;
  const difference = own.score - own.raw_score * factor;
  if (Math.abs(difference) < 0.001) return `Score ${decimal(own.raw_score)} ${product}`;
  if (own.status === "solved" && difference > 0) {
    const paid = `${decimal(own.score / factor)} instead of the verifier's ${decimal(own.raw_score)}`;
    return `Right in another form, which earns ${paid}, ${product}`;
  }
  const by = mode === null ? "the run's score mode" : `score mode ${line(mode)}`;
  return `Score ${decimal(own.raw_score)} in ${by} ${product}`;
}

/** The verifier tries both forms of an answer unless one is enough. */
const form = (score) => (score === null ? "not tried" : decimal(score));

function outcome(own, mode) {
  const length = own.tokens ? plural(own.completion_tokens, "token") : "–";
  const seconds = own.verify_seconds ?? null;
  const facts = {
    Reward: decimal(own.score),
    "Verifier's score": decimal(own.raw_score),
    "Bare answer": form(own.raw_form_score),
    "In answer tags": form(own.tagged_form_score),
    "Length factor": decimal(own.length_factor),
    Completion: own.finish_reason === "length" ? `${length}, truncated` : length,
    "Verification time": seconds === null ? "–" : `${(seconds * 1000).toFixed(2)} ms`,
  };
  const items = Object.entries(facts).map(([name, value]) =>
    make("div", {}, make("dt", {}, name), make("dd", {}, value)),
  );
  const box = make("div", { class: "outcome" });
  box.append(
    make(
      "p",
      {},
      make("span", { class: `dot ${kindOf(own.status)}`, "aria-hidden": "true" }),
      " ",
      make("strong", {}, words(own.status)),
    ),
  );
  box.append(make("p", {}, explainReward(own, mode)));
  if (own.detail) box.append(make("p", {}, make("bdi", {}, line(own.detail))));
  box.append(make("dl", { class: "facts" }, ...items));
  return box;
}

function titled(name, ...content) {
  return make("div", { class: "turn" }, make("h4", {}, name), ...content);
}

function answers(own, oracle) {
  const none = (text) => make("p", { class: "soft" }, text);
  const found = own.answer === null ? none("No answer was extracted.") : modelText(own.answer);
  const right =
    oracle === null ? none("The task has no single correct answer.") : modelText(oracle);
  return make(
    "div",
    { class: "answers" },
    titled("Extracted answer", found),
    titled("Oracle", right),
  );
}

function prompts(row) {
  return row.rollouts[0].conversation.slice(0, -1).map((message) => {
    if (message.role !== "system") return titled(line(message.role), modelText(message.content));
    return make(
      "details",
      { class: "turn", "data-key": "system" },
      make("summary", {}, "System prompt"),
      modelText(message.content),
    );
  });
}

/** The completion, with its thought folded and its answer marked. */
function completion(own, format) {
  const { thought, rest } = splitThought(own.conversation.at(-1).content);
  const spans = answerSpans(rest, own.answer, format);
  return titled("assistant", ...saidTexts(own, thought, rest, [], spans, "thought"));
}

/** A completion's thought and the rest; where nothing follows the thought, it is open. */
function saidTexts(own, thought, rest, inThought, inRest, key) {
  const shown = [];
  if (thought) {
    const title = `Thought, ${plural(thought.length, "character")}`;
    const folded = make("details", { class: "thought", "data-key": `${key}${rest ? "" : " alone"}` });
    folded.open = !rest;
    folded.append(make("summary", {}, title), modelText(thought, inThought));
    shown.push(folded);
  }
  if (rest) shown.push(modelText(rest, inRest));
  else {
    const ending = own.finish_reason === "length" ? "Truncated here." : "No text after the thought.";
    shown.push(make("p", { class: "soft" }, thought ? ending : "No text."));
  }
  return shown;
}

// The rollouts of a group side by side.

function together(row, current) {
  const split = row.rollouts.map((own) => splitThought(own.conversation.at(-1).content));
  const columns = row.rollouts.map((own, number) => {
    const title = make(
      "h4",
      {},
      make("span", { class: `dot ${kindOf(own.status)}`, "aria-hidden": "true" }),
      ` Rollout ${number + 1}: ${words(own.status)}`,
    );
    const facts = make(
      "p",
      { class: "soft" },
      `reward ${decimal(own.score)} · ${own.tokens ? plural(own.completion_tokens, "token") : "no completion"}${own.finish_reason === "length" ? ", truncated" : ""}`,
    );
    const { thought, rest } = split[number];
    const spans = (part) =>
      number === current ? [] : differenceSpans(split[current][part], split[number][part]);
    const inRest =
      number === current
        ? answerSpans(rest, own.answer, row.scoring?.answer_format)
        : spans("rest");
    return make(
      "div",
      { class: number === current ? "column current" : "column" },
      title,
      facts,
      ...saidTexts(own, thought, rest, spans("thought"), inRest, `thought ${number}`),
    );
  });
  const note = make(
    "p",
    { class: "soft" },
    `Words that rollout ${current + 1} does not have at the same place are marked.`,
  );
  return make(
    "div",
    {},
    note,
    make(
      "div",
      { class: "columns", role: "group", "aria-label": "Rollouts side by side" },
      ...columns,
    ),
  );
}

/** Return the spans of a text's words that are not in the other text at the same place. */
function differenceSpans(other, text) {
  const [one, two] = [other, text].map((each) => [...each.matchAll(/\S+/g)]);
  const same = commonWords(one.map(String), two.map(String));
  const spans = [];
  two.forEach((word, number) => {
    if (same.has(number)) return;
    const [start, end] = [word.index, word.index + word[0].length];
    if (spans.length && !same.has(number - 1)) spans.at(-1)[1] = end;
    else spans.push([start, end, "different"]);
  });
  return spans;
}

/** Return the places in `b` of a longest common subsequence; of long texts, of both ends alone. */
function commonWords(a, b) {
  const same = new Set();
  let start = 0;
  while (start < a.length && start < b.length && a[start] === b[start]) same.add(start++);
  let end = 0;
  while (end < a.length - start && end < b.length - start && a.at(-1 - end) === b.at(-1 - end))
    same.add(b.length - 1 - end++);
  const [left, right] = [a.slice(start, a.length - end), b.slice(start, b.length - end)];
  if (left.length * right.length > MOST_CELLS) return same;
  for (const place of longestCommon(left, right)) same.add(start + place);
  return same;
}

/** Return the places in `b` of a longest common subsequence. */
function longestCommon(a, b) {
  const width = b.length + 1;
  const lengths = new Uint16Array((a.length + 1) * width); // of what follows a place in each text
  for (let x = a.length - 1; x >= 0; x -= 1) {
    for (let y = b.length - 1; y >= 0; y -= 1) {
      const at = x * width + y;
      lengths[at] =
        a[x] === b[y]
          ? lengths[at + width + 1] + 1
          : Math.max(lengths[at + width], lengths[at + 1]);
    }
  }
  const kept = [];
  for (let x = 0, y = 0; x < a.length && y < b.length;) {
    if (a[x] === b[y]) {
      kept.push(y);
      x += 1;
      y += 1;
    } else if (lengths[(x + 1) * width + y] >= lengths[x * width + y + 1]) x += 1;
    else y += 1;
  }
  return kept;
}
