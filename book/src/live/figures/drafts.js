/* Day 13, drafts that are looked up: blocks of story-230k, with n-grams as its drafter. */
(function () {
    'use strict';
    const { figure, clip } = window.candecode;
    const MOST = 12; // blocks that the figure has room for

    const plural = (n, one, many) => `${n} ${n === 1 ? one : many || `${one}s`}`;

    figure('drafts', {
        question: 'How many tokens does one pass of the model write, when its own text does the guessing?',
        tryThis:
            'Go on block by block, and watch which drafts are accepted. Then draw the tokens instead of taking the most likely. ' +
            'The drafter works as before. Why are fewer of its tokens accepted?',
        state: { blocks: 6 },
        controls: [
            {
                name: 'text',
                label: 'Prompt',
                kind: 'text',
                value: 'The cat ran. The dog ran. The',
                change: (f) => {
                    f.state.blocks = 1;
                },
            },
            { name: 'k', label: 'K: tokens to draft', kind: 'range', min: 1, max: 8, step: 1, value: 4 },
            {
                name: 'ngram',
                label: 'tokens that must have occurred before',
                kind: 'range',
                min: 1,
                max: 4,
                step: 1,
                value: 1,
            },
            { name: 'drawn', label: 'draw the tokens', kind: 'check', value: false },
            {
                name: 'block',
                label: 'Next block',
                kind: 'button',
                press: (f) => {
                    f.state.blocks = Math.min(f.state.blocks + 1, MOST);
                },
            },
            {
                name: 'again',
                label: 'From the beginning',
                kind: 'button',
                press: (f) => {
                    f.state.blocks = 1;
                },
            },
        ],
        ask: (v, state) => ({
            ask: 'drafts',
            text: v.text,
            blocks: state.blocks,
            num_draft_tokens: v.k,
            ngram: v.ngram,
            seed: v.drawn ? 1 : null,
        }),

        draw(answer, s, f, { values }) {
            const w = s.width;
            const end = answer.tokens.join('');
            let y = 12;
            s.text(
                0,
                y,
                s.narrow
                    ? '✓ accepted, ✗ rejected, thick: the model’s'
                    : 'a row for each pass. ✓: drafted and accepted. ✗ and dashed: rejected. Thick border: the model’s own token.',
                'left note',
            );
            y += 14;
            const left = s.narrow ? 20 : 54,
                cell = Math.min((w - left) / (values.k + 1), 74);
            answer.blocks.forEach((block, i) => {
                s.text(0, y + 13, s.narrow ? `${i + 1}` : `pass ${i + 1}`, 'left note');
                block.drafted.forEach((token, j) => {
                    const accepted = j < block.accepted;
                    s.box(
                        left + j * cell + 1,
                        y,
                        cell - 3,
                        25,
                        `${accepted ? '✓' : '✗'}${clip(token, cell / 8.6 - 1)}`,
                        accepted ? 'draft' : 'dropped',
                    );
                });
                // Behind the accepted drafts stands what the model says itself, if the text goes on.
                if (block.written.length > block.accepted)
                    s.box(
                        left + block.drafted.length * cell + 1,
                        y,
                        cell - 3,
                        25,
                        clip(block.written[block.accepted], cell / 8.6),
                        'new',
                    );
                y += 31;
            });
            y += 12;
            s.text(0, y, 'the text', 'left note');
            const room = s.narrow ? 40 : 76;
            s.text(
                s.narrow ? 0 : left,
                s.narrow ? (y += 18) : y,
                ([...end].length > room ? '…' : '') + [...end].slice(-room).join(''),
                'left mono',
            );
            s.height = y + 14;
            const { passes, drafted, accepted, written } = answer.counts;
            return (
                `${plural(passes, 'pass', 'passes')} of the model wrote ${plural(written, 'token')}, ${(written / passes).toFixed(2)} each. ` +
                (drafted
                    ? `${accepted} of ${plural(drafted, 'drafted token')} ${accepted === 1 ? 'was' : 'were'} accepted.`
                    : 'Nothing was drafted: the last tokens have not occurred before.') +
                (answer.ended ? ' The text has ended.' : '')
            );
        },
    });
})();
