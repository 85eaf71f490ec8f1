// Notes of readers on rollouts and steps: shown with them, written where a server stores them.

const noted = { run: 0, about: "" }; // what the dialog is about

/** Return the text of a note on something of a run; empty without one. */
const noteOn = (run, about) => data.runs[run].notes[about] ?? "";

/** A button that opens the dialog; none where nothing can be stored. */
function noteButton(run, about) {
  if (!source.live) return "";
  const label = noteOn(run, about) ? "Change the note" : "Add a note";
  return makeButton(label, () => openNote(run, about), { "data-key": `note ${about}` });
}

function openNote(run, about) {
  Object.assign(noted, { run, about });
  byId("note-title").textContent = `Note on ${about.startsWith("step ") ? about : "this rollout"}`;
  byId("note-text").value = noteOn(run, about);
  byId("note-said").textContent = "";
  byId("note").showModal();
}

async function saveNote() {
  const text = byId("note-text").value.trim();
  try {
    await source.note(data.runs[noted.run].id, noted.about, text);
  } catch (error) {
    byId("note-said").textContent = `Not stored: ${error.message}`;
    return;
  }
  data.runs[noted.run].notes[noted.about] = text;
  byId("note").close();
  showAll();
}

/** Return the notes on steps of a run, each with the place of the step's first group. */
function notedSteps(run) {
  const order = data.order[run] ?? [];
  const found = Object.entries(data.runs[run].notes).filter(([about, text]) => text && about.startsWith("step "));
  return found.map(([about, text]) => {
    const step = Number(about.slice("step ".length));
    const place = order.findIndex((group) => data.group.step[group] >= step);
    return { about, step, text, place: place < 0 ? order.length - 1 : place };
  });
}

/** Open the dialog for the step that is entered, or the last one. */
function noteStep() {
  const { run } = figuresSeries();
  const last = data.runs[run].step ?? 0;
  const entered = byId("note-step").value;
  openNote(run, `step ${entered === "" ? last : Math.max(0, Math.floor(Number(entered)))}`);
}
