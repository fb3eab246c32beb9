/* Day 6: half a character held back while you type. */
(function () {
    'use strict';
    const { figure, clip } = window.candecode;
    const MOST = 18;

    figure('characters', {
        question: 'When may a token’s text be shown, and when has it to wait?',
        tryThis:
            'Type an emoji, an é, and some text from right to left. How many tokens does each of them wait for?',
        mistakes: [{ mistake: 'day06 nothing_held_back', label: 'nothing is held back' }],
        controls: [{ name: 'text', label: 'Text', kind: 'text', value: 'Zoë 🐈 says hi' }],
        ask: (values) => ({ ask: 'pieces', text: values.text }),

        draw(answer, s) {
            const w = s.width,
                shown = answer.pieces.slice(0, MOST);
            const columns = s.narrow ? 1 : 2,
                wide = w / columns,
                rows = Math.ceil(shown.length / columns);
            const at = s.narrow ? [0, 120, 270] : [0, 120, 260];
            let y = 12;
            for (let c = 0; c < columns && c * rows < shown.length; c++) {
                ['token', 'its bytes', 'text now'].forEach((head, i) =>
                    s.text(c * wide + at[i], y, head, 'left note'),
                );
            }
            y += 12;
            // A special token has no bytes, so it has no text to wait for.
            const isHeld = (piece) => piece.shown === '' && piece.bytes.length > 0;
            const held = answer.pieces.filter(isHeld).length;
            shown.forEach((piece, i) => {
                const x = Math.floor(i / rows) * wide,
                    top = y + (i % rows) * 28;
                const waits = isHeld(piece);
                s.box(x + 1, top, 104, 23, piece.token, waits ? 'known' : 'new');
                s.text(x + at[1], top + 12, clip(piece.bytes.join(' '), 16), 'left note');
                if (waits) s.text(x + at[2], top + 12, 'waits', 'left note faint');
                else
                    s.text(
                        x + at[2],
                        top + 12,
                        clip(piece.shown.replace(/ /g, '·'), 9),
                        'left mono',
                    );
            });
            s.height = y + rows * 28 + 6;
            const more = answer.pieces.length - shown.length;
            return (
                `${answer.pieces.length} tokens. ${held === 0 ? 'None of them waits' : held === 1 ? 'One of them waits' : `${held} of them wait`} for the rest of a character` +
                (more > 0 ? ` (the last ${more} are not shown).` : '.') +
                (answer.rest ? ` At the end “${answer.rest}” was still waiting.` : '')
            );
        },
    });
})();
