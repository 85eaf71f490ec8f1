// What the theme leaves out for readers without a mouse or a screen.
document.querySelector(".md-search").setAttribute("aria-label", "Search");
const amend = () => {
  document.querySelectorAll("pre > code, .md-typeset__scrollwrap").forEach((box) => {
    if (box.scrollWidth > box.clientWidth && box.tabIndex < 0) box.tabIndex = 0; // keys scroll it
  });
  // It holds the button that copies: no part of the page to find one's way by.
  document.querySelectorAll("nav.md-code__nav:not([role])").forEach((nav) => {
    nav.setAttribute("role", "none");
  });
};
amend();
addEventListener("resize", amend);
// The theme's own script adds the buttons, and takes `tabindex` away on touch screens.
new MutationObserver(amend).observe(document.body, {
  attributeFilter: ["tabindex"],
  childList: true,
  subtree: true,
});
