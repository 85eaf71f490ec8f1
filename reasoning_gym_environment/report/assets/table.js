// A sortable table of our own: a few hundred rows, real table elements, marks drawn as SVG.

/**
 * Fill an element with a table.
 *
 * A column has `key`, `label` and `cell(row)`, nodes or text; with `value(row)` it can be sorted;
 * `text` columns stand left. `sort` is a key, with "-" before it for descending.
 */
function showTable(element, { label, columns, rows, sort, onSort, onRow, current }) {
  const descending = sort.startsWith("-");
  const column = columnOf(columns, sort);
  const body = make("tbody", {});
  for (const row of column ? sorted(rows, column, descending) : rows)
    body.append(tableRow(row, columns, onRow, current));
  const head = make("thead", {});
  showHead(head, columns, column, descending, onSort);
  const focused = element.contains(document.activeElement) && document.activeElement.dataset.key;
  element.replaceChildren(make("table", { "aria-label": label }, head, body));
  if (focused) element.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus();
}

/** Return the column that a table is sorted by: the named one, or the first that can be. */
function columnOf(columns, sort) {
  const key = sort.replace(/^-/, "");
  return columns.find((each) => each.key === key && each.value) ?? columns.find((each) => each.value);
}

/** Fill a table's head; a button sorts by its column, and in the other direction if it does. */
function showHead(head, columns, column, descending, onSort) {
  const cells = columns.map((each) => {
    const order = each === column ? (descending ? "descending" : "ascending") : "none";
    const attributes = { scope: "col", class: classOf(each), "aria-sort": order };
    if (!each.value) {
      delete attributes["aria-sort"];
      return make("th", attributes, each.label);
    }
    const first = each.text ? each.key : `-${each.key}`;
    const next = each !== column ? first : descending ? each.key : `-${each.key}`;
    const button = makeButton(each.label, () => onSort(next), { "data-key": `sort ${each.key}` });
    if (each.help) button.title = each.help;
    return make("th", attributes, button);
  });
  const focused = head.contains(document.activeElement) && document.activeElement.dataset.key;
  head.replaceChildren(make("tr", {}, ...cells));
  if (focused) head.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus();
}

function sorted(rows, column, descending) {
  const keyed = rows.map((row) => [column.value(row), row]);
  const missing = ([value]) => value === null || value === undefined;
  keyed.sort((one, other) => {
    if (missing(one) || missing(other)) return missing(one) - missing(other);
    const order = typeof one[0] === "string" ? one[0].localeCompare(other[0]) : one[0] - other[0];
    return descending ? -order : order;
  });
  return keyed.map(([, row]) => row);
}

const classOf = (column) => `${column.text ? "text" : "number"} column-${column.key}`;

function tableRow(row, columns, onRow, current) {
  const line = make("tr", current?.(row) ? { "aria-current": "true" } : {});
  columns.forEach((column, number) => {
    const content = [column.cell(row)].flat();
    const tag = number === 0 ? "th" : "td";
    const cell = make(tag, { class: classOf(column), "data-label": column.label }, ...content);
    if (number === 0) cell.scope = "row";
    line.append(cell);
  });
  if (onRow) {
    line.classList.add("choice");
    line.addEventListener("click", (event) => {
      if (!event.target.closest("button, input, a, label")) onRow(row);
    });
  }
  return line;
}

/** One line of a cell for each run; a single run stands without its mark. */
function lines(values, content) {
  return values.map((value) => make("div", { class: "line" }, ...[content(value)].flat()));
}

const WIDTH = 120;

/** A share with its interval, and the floor of chance, on an axis from 0 to 100 %. */
function intervalBar(estimate, chance, series) {
  const x = (value) => (4 + value * (WIDTH - 8)).toFixed(1);
  const drawing = makeSvg("svg", {
    class: `bar series-${series}`,
    viewBox: `0 0 ${WIDTH} 16`,
    "aria-hidden": "true",
  });
  drawing.append(makeSvg("line", { class: "axis", x1: x(0), x2: x(1), y1: 8, y2: 8 }));
  if (chance !== null) {
    drawing.append(
      makeSvg("line", { class: "chance", x1: x(chance), x2: x(chance), y1: 2, y2: 14 }),
    );
  }
  if (estimate) {
    drawing.append(
      makeSvg("line", {
        class: "interval",
        x1: x(estimate.low),
        x2: x(estimate.high),
        y1: 8,
        y2: 8,
      }),
      makeSvg("circle", { class: "mark", cx: x(estimate.value), cy: 8, r: 4 }),
    );
  }
  return drawing;
}

/** A difference with its interval, on an axis around 0. */
function differenceBar(change) {
  const x = (value) => (4 + ((value + 1) / 2) * (WIDTH - 8)).toFixed(1);
  return makeSvg(
    "svg",
    {
      class: `bar ${change.beyond ? (change.value > 0 ? "gain" : "loss") : ""}`,
      viewBox: `0 0 ${WIDTH} 16`,
      "aria-hidden": "true",
    },
    makeSvg("line", { class: "axis", x1: x(-1), x2: x(1), y1: 8, y2: 8 }),
    makeSvg("line", { class: "zero", x1: x(0), x2: x(0), y1: 2, y2: 14 }),
    makeSvg("line", { class: "interval", x1: x(change.low), x2: x(change.high), y1: 8, y2: 8 }),
    makeSvg("circle", { class: "mark", cx: x(change.value), cy: 8, r: 4 }),
  );
}

/** A line through shares in [0, 1]; nulls are left out. */
function sparkline(values, series) {
  const drawing = makeSvg("svg", {
    class: `spark series-${series}`,
    viewBox: "0 0 80 18",
    "aria-hidden": "true",
  });
  const points = values
    .map((value, number) => [2 + (76 * number) / Math.max(1, values.length - 1), value])
    .filter(([, value]) => value !== null)
    .map(([x, value]) => `${x.toFixed(1)},${(16 - 14 * value).toFixed(1)}`);
  if (points.length > 1) drawing.append(makeSvg("polyline", { points: points.join(" ") }));
  return drawing;
}
