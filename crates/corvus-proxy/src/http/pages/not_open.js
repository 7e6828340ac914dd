// Before the opening: counts down, then asks again. A crowd waits for the same moment, so each
// visitor takes up to five seconds.
countdown(byId('clock'), page.opens_in, () => {
  setTimeout(enter, 500 + Math.random() * 4500);
});
