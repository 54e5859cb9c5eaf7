/* What the theme leaves out for screen readers and keyboards: the name of the search, and a way to
   scroll without a mouse. Buttons above code are no landmarks. Short code, and options in longer code
   and in pages of the manual, get a class, by which they are not split. Much of it is made after the
   page was loaded. */

const LONGEST_WHOLE = 24

/* The text of an element, with its options as elements of their own. */
function withOptions(text) {
  return text.split(/(?<!\S)(-\S+)/).map((part, index) => {
    if (index % 2 === 0 || part.length > LONGEST_WHOLE) return part
    const option = document.createElement("span")
    option.className = "whole"
    option.textContent = part
    return option
  })
}

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
  for (const code of document.querySelectorAll(".md-typeset :not(pre) > code:not(.whole, .parted)")) {
    const isShort = code.textContent.length <= LONGEST_WHOLE
    code.classList.add(isShort ? "whole" : "parted")
    if (!isShort) code.replaceChildren(...withOptions(code.textContent))
  }
  for (const words of document.querySelectorAll(".md-typeset :is(strong, em):not(.parted)")) {
    words.classList.add("parted")
    if (!words.childElementCount) words.replaceChildren(...withOptions(words.textContent))
  }
}

new MutationObserver(complete).observe(document.body, { childList: true, subtree: true })
complete()
