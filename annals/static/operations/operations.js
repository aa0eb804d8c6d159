/* Shows the page again, but not to nobody: a page in the background waits. The header says that
   nobody did anything: an idle login still ends, and then the page is asked for as a whole. */
"use strict";
setInterval(async () => {
    if (document.hidden) {
        return;
    }
    const content = document.querySelector("#content");
    try {
        const answer = await fetch(location.href, {
            headers: { "X-Annals-Poll": "1" },
            redirect: "manual",
            signal: AbortSignal.timeout(20000),
        });
        if (answer.status >= 500) {
            throw new Error(answer.status);
        }
        if (!answer.ok) {
            location.reload();
            return;
        }
        const page = new DOMParser().parseFromString(await answer.text(), "text/html");
        content.replaceWith(page.querySelector("#content"));
        document.dispatchEvent(new Event("annals:shown"));
    } catch {
        // Green on a wall would say that all is well now.
        content.classList.add("unanswered");
        content.querySelector("[role=alert]").hidden = false;
    }
}, 30000);
