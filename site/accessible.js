/* What the theme leaves out for screen readers and keyboards: the name of the search, and a way to
   scroll without a mouse. Buttons above code are no landmarks. Much of it is made after the page
   was loaded. */

function complete() {
  for (const dialog of document.querySelectorAll("[role=dialog]:not([aria-label])")) {
    dialog.setAttribute("aria-label", "Search")
  }
  for (const buttons of document.querySelectorAll(".md-code__nav:not([role])")) {
    buttons.setAttribute("role", "none")
  }
  const scrolled = ".md-typeset pre > code, .md-typeset__scrollwrap, .md-sidebar__scrollwrap"
  for (const element of document.querySelectorAll(scrolled)) {
    element.tabIndex = 0
  }
}

new MutationObserver(complete).observe(document.body, { childList: true, subtree: true })
complete()
