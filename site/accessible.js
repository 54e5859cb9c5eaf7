/* What the theme leaves out for screen readers and keyboards: the name of the search, and a way to
   scroll without a mouse. Buttons above code are no landmarks. Short code gets a class, by which it
   is not split. Much of it is made after the page was loaded. */

const LONGEST_WHOLE = 24

function complete() {
  for (const dialog of document.querySelectorAll("[role=dialog]:not([aria-label])")) {
    dialog.setAttribute("aria-label", "Search")
  }
  for (const buttons of document.querySelectorAll(".md-code__nav:not([role])")) {
    buttons.setAttribute("role", "none")
  }
  // Parts of a table of contents are no landmarks: one can have the name of a part of the site.
  for (const part of document.querySelectorAll(".md-nav--secondary nav:not([role])")) {
    part.removeAttribute("aria-label")
    part.setAttribute("role", "none")
  }
  const scrolled = ".md-typeset pre > code, .md-typeset__scrollwrap, .md-sidebar__scrollwrap"
  for (const element of document.querySelectorAll(scrolled)) {
    element.tabIndex = 0
  }
  for (const code of document.querySelectorAll(".md-typeset :not(pre) > code:not(.whole)")) {
    code.classList.toggle("whole", code.textContent.length <= LONGEST_WHOLE)
  }
}

new MutationObserver(complete).observe(document.body, { childList: true, subtree: true })
complete()
