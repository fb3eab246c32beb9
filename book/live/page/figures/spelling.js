/* Day 14, every spelling: a word's lattice, the automaton's walk, and a text with the rail on. */
(function () {
    'use strict';
    const { figure, clip } = window.candecode;

    figure('spelling', {
        question:
            'In how many ways could the model write this word, and how does the automaton see all of them?',
        tryThis:
            'Block a word that the text below contains, and watch the model go round it. ' +
            'Then tick “only whole words”. When does the automaton now know that the word was there?',
        mistakes: [
            {
                mistake: 'day14 only_at_a_tokens_end',
                label: 'only the last byte of a token is judged',
            },
        ],
        controls: [
            { name: 'word', label: 'Blocked word', kind: 'text', value: 'happy' },
            {
                name: 'text',
                label: 'Text for the automaton',
                kind: 'text',
                value: 'Tom was happy.',
            },
            { name: 'whole', label: 'only whole words', kind: 'check', value: false },
            { name: 'prompt', label: 'Prompt', kind: 'text', value: 'Lily was very' },
        ],
        ask: (v) => ({ ask: 'spelling', word: v.word, text: v.text, whole: v.whole }),

        async more(f, ask) {
            const word = f.values.word.trim();
            const params = { max_new_tokens: 16 };
            f.free = await ask({
                ask: 'generate',
                whose: 'spelling',
                text: f.values.prompt,
                params,
                steps: 16,
            });
            f.railed = await ask({
                ask: 'generate',
                whose: 'spelling',
                text: f.values.prompt,
                params: { ...params, block: [word], block_whole_words: f.values.whole },
                steps: 16,
            });
        },

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
                const length = new TextEncoder().encode(token.replace(/·/g, ' ')).length;
                usual.add(`${at}-${at + length}`);
                at += length;
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

            // The same prompt, free and with the rail on.
            const text = (tokens) =>
                tokens.new
                    .map((token) => token.text)
                    .join('')
                    .replace(/\s+/g, ' ')
                    .trim();
            for (const [label, tokens] of [
                ['free', f.free],
                ['with the rail', f.railed],
            ]) {
                if (!tokens) continue;
                s.text(0, y, `${label}:`, 'left note strong');
                if (s.narrow) y += 18;
                s.text(s.narrow ? 0 : 100, y, clip(text(tokens), s.narrow ? 44 : 76), 'left mono');
                y += 22;
            }
            s.height = y;
            const broken = answer.walk.findIndex((step) => step.broken);
            return (
                `“${answer.word}” can be written with these tokens in ${answer.paths} ${answer.paths === 1 ? 'way' : 'ways'}. ` +
                (broken < 0
                    ? 'The automaton has found nothing in the text.'
                    : `The automaton knows it at byte ${broken + 1} of the text.`)
            );
        },
    });
})();
