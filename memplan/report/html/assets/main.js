// Puts the parts to work: theme, download, one article at a time.

const treemaps = [];
const made = new Set();

/** Make an article's pictures when it is first seen. */
function open(article) {
  const estimate = estimates[article.dataset.index];
  if (made.has(article) || !estimate?.peak) return;
  made.add(article);
  const part = (name) => article.querySelector(`[data-part=${name}]`);
  if (part("timeline")) new Timeline(part("timeline"), estimate);
  if (part("map")) new AllocatorMap(part("map"), estimate);
  if (part("treemap")) treemaps.push(new Treemap(part("treemap"), estimate));
  if (part("owners")) new Owners(part("owners"), estimate);
}

/** Show one article, and mark its row in the table of verdicts. */
function choose(article) {
  for (const each of articles) each.hidden = each !== article;
  for (const link of document.querySelectorAll("a[data-article]")) {
    link.closest("tr").setAttribute("aria-current", String(link.dataset.article === article.id));
  }
  open(article);
}

function chosen() {
  return articles.find(({ id }) => id === decodeURIComponent(location.hash.slice(1))) ?? articles[0];
}

function download() {
  const link = make("a", { href: URL.createObjectURL(new Blob([report], { type: "application/json" })), download: "memplan.json" });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

const articles = [...document.querySelectorAll("article[data-index]")];
document.documentElement.classList.add("scripted");
for (const hidden of document.querySelectorAll(".needs-script")) hidden.classList.remove("needs-script");
document.getElementById("download").addEventListener("click", download);
document.addEventListener("theme", () => treemaps.forEach((map) => map.draw()));
theme.start();
if (articles.length) choose(chosen());
window.addEventListener("hashchange", () => choose(chosen()));
window.addEventListener("beforeprint", () => {
  articles.forEach(open);
  theme.set("light");
  for (const picture of Picture.all) picture.now();
});
window.addEventListener("afterprint", theme.follow);
