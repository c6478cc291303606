// On a narrow screen a run's stage lies below its button: bring it into view.
document.addEventListener("click", (event) => {
  const from = event.target.closest("[id$='-run'], [id$='-examples'] [data-index]");
  if (!from || window.innerWidth > 860) return;
  const tab = (from.closest("[id$='-examples']") ?? from).id.split("-")[0];
  document.getElementById(`${tab}-stage`)?.scrollIntoView({ behavior: "smooth", block: "center" });
});

// Timelines and plots follow a video and seek it. A part with data-clock="ID" belongs to the player in element #ID.
(() => {
  const playerOf = (part) => document.querySelector(`#${part.dataset.clock} video`);

  const move = (video) => {
    for (const part of document.querySelectorAll("[data-clock]")) {
      if (playerOf(part) !== video) continue;
      const where = `${Math.min(100, (100 * video.currentTime) / part.dataset.duration)}%`;
      for (const head of part.querySelectorAll(".playhead")) head.style.left = where;
    }
  };

  const follow = (video) => {
    move(video);
    if (!video.paused && !video.ended) requestAnimationFrame(() => follow(video));
  };

  for (const happening of ["play", "seeked", "pause", "ended"])
    document.addEventListener(happening, (event) => event.target.tagName === "VIDEO" && follow(event.target), true);

  document.addEventListener("click", (event) => {
    const target = event.target.closest("[data-seek], [data-seekable]");
    const part = target?.closest("[data-clock]");
    const video = part && playerOf(part);
    if (!video) return;
    const box = target.getBoundingClientRect();
    const fraction = (event.clientX - box.left) / box.width;
    video.currentTime = target.dataset.seek ?? fraction * part.dataset.duration;
    move(video);
  });
})();
