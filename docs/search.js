// Which pages a search shows first: those that say where a flag goes before those that tell what happened.
var Scorer = {
  score: ([page, title, anchor, description, score]) =>
    score + (page.startsWith("docs/coming-from/") ? 3 : ["docs/log", "CHANGELOG"].includes(page) ? -20 : 0),
  objNameMatch: 11, objPartialMatch: 6, objPrio: { 0: 15, 1: 5, 2: -5 }, objPrioDefault: 0,
  title: 15, partialTitle: 7, term: 5, partialTerm: 2,
};

// A page that was opened from a disk may fetch nothing: what results say comes from a script that the build writes.
if (location.protocol === "file:") {
  const texts = new Promise((done) => {
    const script = document.createElement("script");
    script.src = document.documentElement.dataset.content_root + "_static/texts.js";
    script.onload = () => done(TEXTS);
    document.head.append(script);
  });
  window.fetch = (address) => texts.then((of) => ({ text: () => of[address.replace(/^(\.\/)+|\.html$/g, "")] }));
}
