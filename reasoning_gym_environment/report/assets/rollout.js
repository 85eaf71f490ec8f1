// One rollout in full.

async function showDetail(rollout) {
  const detail = byId("detail");
  if (rollout === undefined) return detail.replaceChildren();
  const group = groupOf[rollout];
  const texts = await textsOf(group);
  if (found[place] !== rollout) return undefined; // another one was selected
  const number = rollout - firstOf[group];
  const own = texts.rollouts[number];
  return detail.replaceChildren(
    backButton(),
    heading(rollout, texts),
    siblings(group, rollout),
    reward(own, texts.score_mode),
    answers(own, texts.oracle),
    ...texts.prompt.map(turn),
    completion(own),
    make("p", { class: "soft" }, `Seed ${texts.seed} · ${lineOf(texts.file)}`),
  );
}

function backButton() {
  const back = make("button", { type: "button", class: "back" }, "Back to the list");
  back.addEventListener("click", () => byId("filters").scrollIntoView());
  return back;
}

function heading(rollout, texts) {
  const parts = [texts.category, index.group_split[groupOf[rollout]]];
  if (texts.level !== null) parts.push(`level ${texts.level}`);
  if (texts.time) parts.push(`${lineOf(texts.time).slice(0, 19).replace("T", " ")} UTC`);
  const title = make("h3", {}, lineOf(taskOf(rollout)));
  return make("header", {}, title, make("span", { class: "soft" }, parts.join(" · ")));
}

/** All rollouts of the same problem. */
function siblings(group, current) {
  const buttons = Array.from({ length: index.group_size[group] }, (_, number) => {
    const rollout = firstOf[group] + number;
    const status = words(index.status[rollout]);
    const button = make(
      "button",
      {
        type: "button",
        "aria-current": rollout === current,
        "aria-label": `Rollout ${number + 1}: ${status}`,
      },
      make("span", { class: `dot ${index.status[rollout]}` }),
      decimal(index.score[rollout]),
    );
    button.addEventListener("click", () => showSibling(rollout));
    return button;
  });
  const label = "Rollouts of the same problem";
  return make("div", { class: "siblings", role: "group", "aria-label": label }, ...buttons);
}

/** Add a rollout that the filters exclude to the list, after the current one. */
async function showSibling(rollout) {
  if (!found.includes(rollout)) found.splice(place + 1, 0, rollout);
  await choose(found.indexOf(rollout));
  byId("detail").querySelector("[aria-current=true]").focus();
}

function explainReward(own, mode) {
  if (own.finish_reason === "error") return "The server gave no completion.";
  if (own.status === "unscored") {
    return "The verifier could not score this answer. Its reward is the mean of the other rollouts in the group, and its advantage is zero.";
  }
  const product = `× length factor ${decimal(own.length_factor)} = reward ${decimal(own.score)}.`;
  const same = Math.abs(own.raw_score * (own.length_factor ?? 1) - own.score) < 0.001;
  const by = mode === null ? "the run's score mode" : `score mode ${lineOf(mode)}`;
  return `Score ${decimal(own.raw_score)}${same ? "" : ` in ${by}`} ${product}`;
}

/** The verifier tries both forms of an answer unless one is enough. */
const form = (score) => (score === null ? "not tried" : decimal(score));

function reward(own, mode) {
  const length = own.completion_tokens === null ? "–" : plural(own.completion_tokens, "token");
  const seconds = own.verify_seconds;
  const facts = {
    Reward: decimal(own.score),
    "Verifier's score": decimal(own.raw_score),
    "Bare answer": form(own.raw_form_score),
    "In answer tags": form(own.tagged_form_score),
    "Length factor": decimal(own.length_factor),
    Completion: own.finish_reason === "length" ? `${length}, truncated` : length,
    "Verification time": seconds === null ? "–" : `${(seconds * 1000).toFixed(2)} ms`,
  };
  const list = Object.entries(facts).map(([name, value]) =>
    make("div", {}, make("dt", {}, name), make("dd", {}, value)),
  );
  const box = make("div", { class: "reward" });
  const title = make("strong", {}, words(own.status));
  box.append(make("p", {}, make("span", { class: `dot ${own.status}` }), " ", title));
  box.append(make("p", {}, explainReward(own, mode)));
  if (own.detail) box.append(make("p", {}, make("bdi", {}, lineOf(own.detail))));
  box.append(make("dl", {}, ...list));
  return box;
}

function titled(name, ...content) {
  return make("div", { class: "turn" }, make("h4", {}, name), ...content);
}

function answers(own, oracle) {
  const none = (text) => make("p", { class: "soft" }, text);
  const found = own.answer === null ? none("No answer was extracted.") : modelText(own.answer);
  const right = oracle === null ? none("The task has no single correct answer.") : modelText(oracle);
  return make(
    "div",
    { class: "answers" },
    titled("Extracted answer", found),
    titled("Oracle", right),
  );
}

function turn(message) {
  if (message.role !== "system") return titled(lineOf(message.role), modelText(message.content));
  const folded = make("details", { class: "turn" });
  folded.append(make("summary", {}, "System prompt"), modelText(message.content));
  return folded;
}

function completion(own) {
  const said = titled("assistant");
  if (own.thought) {
    const thought = make("details", { class: "thought" });
    const length = plural(own.thought.length, "character");
    thought.append(make("summary", {}, `Thought, ${length}`), modelText(own.thought));
    said.append(thought);
  }
  if (own.rest) said.append(modelText(own.rest));
  else said.append(make("p", { class: "soft" }, "No text after the thought."));
  return said;
}
