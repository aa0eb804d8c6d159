/* Shows the page again, but not to nobody: a page in the background waits. The header says that
   nobody did anything: an idle login still ends, and then the page is asked for as a whole. */
"use strict";
setInterval(async () => {
    if (document.hidden) {
        return;
    }
    const answer = await fetch(location.href, {
        headers: { "X-Annals-Poll": "1" },
        redirect: "manual",
    }).catch(() => null);
    if (answer && !answer.ok && answer.status < 500) {
        location.reload();
    } else if (answer?.ok) {
        const page = new DOMParser().parseFromString(await answer.text(), "text/html");
        document.querySelector("#content").replaceWith(page.querySelector("#content"));
        document.dispatchEvent(new Event("annals:shown"));
    }
}, 30000);
