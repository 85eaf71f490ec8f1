// Tables of the leaderboard sort by the column whose head is clicked or gets Enter.
document.querySelectorAll("table").forEach((table) => {
  const heads = [...table.querySelectorAll("thead th")];
  if (!heads.some((head) => head.textContent.trim() === "rank")) return;
  const value = (row, column) => {
    const text = row.cells[column].textContent.trim();
    const number = parseFloat(text);
    return Number.isNaN(number) ? text : number;
  };
  heads.forEach((head, column) => {
    head.tabIndex = 0;
    head.setAttribute("role", "button");
    const sort = () => {
      const down = head.getAttribute("aria-sort") !== "descending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const rows = [...table.tBodies[0].rows].sort((one, other) => {
        const [a, b] = [value(one, column), value(other, column)];
        const order = a < b ? -1 : a > b ? 1 : 0;
        return down ? -order : order;
      });
      table.tBodies[0].append(...rows);
    };
    head.addEventListener("click", sort);
    head.addEventListener("keydown", (event) => event.key === "Enter" && sort());
  });
});
