/* Replaces the content of the page every 30 seconds, unless the page is in the background. The header
   says that the request does not come from a person, so it does not keep an idle login alive. If the
   login has ended, the whole page is loaded again, which leads to the login page. */
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
        // Without this notice, an old green page on a wall would say that all is well now.
        content.classList.add("unanswered");
        content.querySelector("[role=alert]").hidden = false;
    }
}, 30000);
