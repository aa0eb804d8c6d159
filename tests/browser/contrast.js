// Texts whose contrast with what is behind them is below 4.5 to 1 (3 to 1 where large).
() => {
    const parse = (text) => {
        const [r, g, b, a = 1] = text.match(/[\d.]+/g).map(Number);
        return { r, g, b, a };
    };
    const over = (top, below) => ({
        r: top.r * top.a + below.r * (1 - top.a),
        g: top.g * top.a + below.g * (1 - top.a),
        b: top.b * top.a + below.b * (1 - top.a),
        a: 1,
    });
    const behind = (element) => {
        const layers = [];
        for (let one = element; one; one = one.parentElement) {
            const colour = parse(getComputedStyle(one).backgroundColor);
            layers.push(colour);
            if (colour.a === 1) {
                break;
            }
        }
        const dark = getComputedStyle(document.documentElement).colorScheme === "dark";
        const page = dark ? { r: 18, g: 18, b: 18, a: 1 } : { r: 255, g: 255, b: 255, a: 1 };
        return layers.reverse().reduce((below, top) => over(top, below), page);
    };
    const light = ({ r, g, b }) => {
        const [x, y, z] = [r, g, b].map((value) => {
            const part = value / 255;
            return part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
        });
        return 0.2126 * x + 0.7152 * y + 0.0722 * z;
    };
    const poor = [];
    for (const element of document.querySelectorAll("body *")) {
        const own = [...element.childNodes].some((node) => node.nodeType === 3
            && node.textContent.trim());
        if (!own || !element.checkVisibility({ visibilityProperty: true })
            || element.classList.contains("visually-hidden")) {
            continue;
        }
        const style = getComputedStyle(element);
        const back = behind(element);
        const front = over(parse(style.color), back);
        const [high, low] = [light(front), light(back)].sort((one, two) => two - one);
        const ratio = (high + 0.05) / (low + 0.05);
        const size = parseFloat(style.fontSize);
        const large = size >= 24 || (size >= 18.66 && parseInt(style.fontWeight, 10) >= 700);
        if (ratio < (large ? 3 : 4.5)) {
            poor.push(`${ratio.toFixed(2)} ${element.tagName}.${element.className}: `
                + element.textContent.trim().slice(0, 40));
        }
    }
    return [...new Set(poor)];
}
