"use strict";
(() => {
  const questions = [...document.querySelectorAll("details.question")];
  const [text, kind, differ, failed, count] = ["text", "kind", "differ", "failed", "count"].map((id) => document.getElementById(id));
  const show = () => {
    const wanted = text.value.toLowerCase();
    let left = 0;
    for (const one of questions) {
      const fits = one.textContent.toLowerCase().includes(wanted)
        && (!kind || kind.value === "*" || JSON.parse(one.dataset.kinds).includes(kind.value))
        && (!differ?.checked || one.dataset.differ === "1") && (!failed.checked || one.dataset.failed === "1");
      one.hidden = !fits;
      left += fits;
    }
    count.textContent = `${left} of ${questions.length}`;
  };
  for (const one of [text, kind, differ, failed]) one?.addEventListener("input", show);
  show();
})();
