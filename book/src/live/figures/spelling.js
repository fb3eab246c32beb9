/* Day 14, every spelling: a word's lattice, the automaton's walk, and a text with the rail on. */
(function () {
    'use strict';
    const { figure, clip } = window.candecode;

    figure('spelling', {
        question:
            'In how many ways could the model write this word, and how does the automaton see all of them?',
        tryThis:
            'Block a word that the text below contains, and watch the model go round it. ' +
            'Let the prompt end inside the word, as “Lily was very ha”: what is forbidden there? ' +
            'Then tick “only whole words”. When does the automaton now know that the word was there?',
        mistakes: [
            {
                mistake: 'day14 only_at_a_tokens_end',
                label: 'only the last byte of a token is judged',
            },
        ],
        state: { new: 8 },
        controls: [
            { name: 'word', label: 'Blocked word', kind: 'text', value: 'happy' },
            {
                name: 'text',
                label: 'Text for the automaton',
                kind: 'text',
                value: 'Tom was happy.',
            },
            { name: 'whole', label: 'only whole words', kind: 'check', value: false },
            {
                name: 'prompt',
                label: 'Prompt',
                kind: 'text',
                value: 'Lily was very',
                change: (f) => {
                    f.state.new = 1;
                },
            },
            {
                name: 'step',
                label: 'Next token',
                kind: 'button',
                press: (f) => {
                    f.state.new = Math.min(f.state.new + 1, 16);
                },
            },
            {
                name: 'again',
                label: 'From the beginning',
                kind: 'button',
                press: (f) => {
                    f.state.new = 1;
                },
            },
        ],
        ask: (v, state) => ({
            ask: 'spelling',
            word: v.word,
            text: v.text,
            whole: v.whole,
            prompt: v.prompt,
            new: state.new,
        }),

        draw(answer, s, f) {
            const w = s.width,
                n = answer.bytes.length;
            const unit = (w - 2) / n;
            // Tokens of several bytes in as few lines as they need, the longest on top.
            const long = answer.edges
                .filter((edge) => edge.to - edge.from > 1)
                .sort((a, b) => b.to - b.from - (a.to - a.from) || a.from - b.from);
            const lines = [];
            for (const edge of long) {
                const line = lines.find((line) =>
                    line.every((other) => edge.to <= other.from || edge.from >= other.to),
                );
                if (line) line.push(edge);
                else lines.push([edge]);
            }
            const usual = new Set();
            let at = 0;
            for (const token of answer.usual) {
                const edge = answer.edges.find((edge) => edge.from === at && edge.token === token);
                if (!edge) break;
                usual.add(`${at}-${edge.to}`);
                at = edge.to;
            }
            let y = 12;
            s.text(
                0,
                y,
                s.narrow
                    ? `${answer.paths} paths; thick: the tokenizer’s`
                    : `every token that fits into the word; each path from left to right spells it (thick border: as the tokenizer cuts it)`,
                'left note',
            );
            y += 12;
            for (const line of [
                ...lines,
                answer.edges.filter((edge) => edge.to - edge.from === 1),
            ]) {
                for (const edge of line) {
                    s.box(
                        1 + edge.from * unit,
                        y,
                        (edge.to - edge.from) * unit - 3,
                        25,
                        edge.token,
                        usual.has(`${edge.from}-${edge.to}`) ? 'new' : 'known',
                    );
                }
                y += 29;
            }

            // The automaton's walk.
            y += 16;
            s.text(
                0,
                y,
                s.narrow
                    ? 'the automaton reads the text'
                    : 'the automaton reads the text: below each byte the state it leads to; red and dashed: the rule is broken',
                'left note',
            );
            y += 12;
            const each = s.narrow ? 24 : 30,
                columns = Math.floor((w - 2) / each);
            const walk = answer.walk.slice(0, columns * 3);
            walk.forEach((step, i) => {
                const x = 1 + (i % columns) * each,
                    top = y + Math.floor(i / columns) * 50;
                const sign =
                    step.byte === 32
                        ? '·'
                        : step.byte > 32 && step.byte < 127
                          ? String.fromCharCode(step.byte)
                          : step.byte.toString(16);
                s.text(x + each / 2, top + 8, sign, 'mono');
                s.box(
                    x,
                    top + 17,
                    each - 4,
                    23,
                    String(step.state),
                    step.broken ? 'dropped' : step.state === 0 ? 'known' : 'kept',
                    'note',
                );
            });
            y += Math.ceil(walk.length / columns) * 50 + 12;

            // The same prompt, as the model likes it and with the rail on, where the automaton walks along.
            const line = (label, steps, railed) => {
                s.text(0, y, label, 'left note');
                y += 12;
                let x = 1;
                for (const { token, rail } of steps) {
                    const shown = clip(token, 12),
                        wide = Math.max(railed ? 46 : 30, [...shown].length * 8 + 12);
                    if (x + wide > w - 1) {
                        x = 1;
                        y += railed ? 64 : 31;
                    }
                    s.box(x, y, wide, 25, shown, railed && rail.instead_of ? 'new' : 'known');
                    if (railed) {
                        s.text(x + wide / 2, y + 35, `state ${rail.state}`, 'note');
                        s.text(
                            x + wide / 2,
                            y + 50,
                            rail.forbidden ? `−${rail.forbidden}` : '',
                            'note strong',
                        );
                    }
                    x += wide + 4;
                }
                y += (railed ? 64 : 31) + 8;
            };
            line('the prompt goes on, free', answer.free, false);
            line(
                s.narrow
                    ? 'with the rail: state before, tokens forbidden'
                    : 'and with the rail: below each token the state before it, and how many tokens were forbidden there',
                answer.railed,
                true,
            );
            s.height = y;
            const broken = answer.walk.findIndex((step) => step.broken);
            const turned = answer.railed.find(({ rail }) => rail.instead_of);
            const text = answer.cut
                ? `the first ${answer.walk.length} bytes of the text`
                : 'the text';
            const found =
                broken >= 0
                    ? `The automaton knows it at byte ${broken + 1} of the text${broken < walk.length ? '' : ', which is past the end of the picture'}.`
                    : answer.undecided
                      ? 'The text ends with it, and the automaton waits to see whether the word goes on.'
                      : `The automaton has found nothing in ${text}.`;
            return (
                `“${answer.word}” can be written with these tokens in ${answer.paths} ${answer.paths === 1 ? 'way' : 'ways'}. ` +
                found +
                (turned
                    ? ` With the rail the model writes “${turned.token}” where it would have written “${turned.rail.instead_of}”.`
                    : '')
            );
        },
    });
})();
