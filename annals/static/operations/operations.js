/* Shows the page again, but not to nobody: a page in the background waits. */
"use strict";
setInterval(() => {
    if (!document.hidden) {
        location.reload();
    }
}, 30000);
