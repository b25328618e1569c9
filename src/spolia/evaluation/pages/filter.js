"use strict";
(() => {
  const questions = [...document.querySelectorAll("details.question")];
  const text = document.getElementById("text"), differ = document.getElementById("differ"), failed = document.getElementById("failed");
  const count = document.getElementById("count");
  const show = () => {
    const wanted = text.value.toLowerCase();
    let left = 0;
    for (const one of questions) {
      const fits = one.textContent.toLowerCase().includes(wanted)
        && (!differ.checked || one.dataset.differ === "1") && (!failed.checked || one.dataset.failed === "1");
      one.hidden = !fits;
      left += fits;
    }
    count.textContent = `${left} of ${questions.length}`;
  };
  for (const one of [text, differ, failed]) one.addEventListener("input", show);
  show();
})();
