/* Day 22, shared prefixes: texts that come one after the other and find each other's blocks. */
(function () {
    'use strict';
    const { figure } = window.candecode;
    // Each text adds a question and an answer to what its chat has said already.
    const TEXTS = [
        { chat: 'A', asks: 5, says: 7 },
        { chat: 'B', asks: 4, says: 8 },
        { chat: 'A', asks: 4, says: 5 },
        { chat: 'C', asks: 18, says: 5, alone: true }, // without the system prompt
        { chat: 'B', asks: 5, says: 4 },
        { chat: 'D', asks: 6, says: 6 },
        { chat: 'A', asks: 4, says: 4 },
    ];
    const names = TEXTS.map(({ chat }, i) => {
        const turn = TEXTS.slice(0, i + 1).filter((text) => text.chat === chat).length;
        return `${chat}, turn ${turn}`;
    });

    /** The texts' tokens: the same number means the same token. */
    function texts(system, salted) {
        const chats = {};
        let next = 100; // tokens that no text has had yet
        const fresh = (n) => Array.from({ length: n }, () => next++);
        return TEXTS.map(({ chat, asks, says, alone }) => {
            const start = alone ? [] : Array.from({ length: system }, (_, i) => i);
            const prompt = [...(chats[chat] || start), ...fresh(asks)];
            chats[chat] = [...prompt, ...fresh(says)];
            const tokens = chats[chat].slice(0, -1); // the last one is never fed
            return { tokens, prompt: prompt.length, salt: salted ? chat : '' };
        });
    }

    figure('prefixes', {
        question: 'Which blocks does a text find, and which ones are forgotten to make room for it?',
        tryThis:
            'Move through the prompts and compare turn 2 with turn 1 of the same chat. Then make the pool smaller, one step at a time. ' +
            'Which blocks of a chat go first, its beginning or its end? At last give each chat a salt of its own: what can it still find?',
        controls: [
            {
                name: 'text',
                label: 'prompt',
                kind: 'range',
                min: 0,
                max: TEXTS.length - 1,
                step: 1,
                value: 2,
                show: (i) => names[i],
            },
            {
                name: 'system',
                label: 'tokens in the system prompt',
                kind: 'range',
                min: 0,
                max: 20,
                step: 1,
                value: 12,
            },
            {
                name: 'size',
                label: 'positions in a block',
                kind: 'select',
                options: ['1', '2', '4', '8'],
                value: '4',
            },
            {
                name: 'positions',
                label: 'positions in the pool',
                kind: 'range',
                min: 48,
                max: 128,
                step: 8,
                value: 80,
            },
            { name: 'salted', label: 'a salt for each chat', kind: 'check', value: false },
        ],
        ask: (v) => ({
            ask: 'prefixes',
            blocks: v.positions / Number(v.size),
            block_size: Number(v.size),
            texts: texts(v.system, v.salted),
        }),

        draw(answer, s, f, { values }) {
            const size = Number(values.size);
            const at = values.text;
            const step = answer.steps[at];
            const asked = texts(values.system, values.salted);
            const across = s.narrow ? 16 : 32; // positions in a line
            const cell = Math.floor((s.width - 4) / across);
            const perLine = across / size;
            const pool = step.lacks
                ? `the pool, too small for ${names[at]}`
                : `the pool while ${names[at]} runs`;
            s.text(
                0,
                10,
                s.narrow || size * cell <= 30
                    ? pool
                    : `${pool}. Under a block: the start of its hash`,
                'left note',
            );
            step.blocks.forEach(({ holders, hash }, i) => {
                const x = (i % perLine) * size * cell + 2;
                const y = 22 + Math.floor(i / perLine) * 42;
                const mine = step.table && step.table.includes(i);
                const role = !step.lacks && step.attached.includes(i)
                    ? 'draft'
                    : mine
                      ? 'new'
                      : holders || !hash
                        ? 'known'
                        : 'kept';
                const is = holders || hash ? 'box' : 'box dashed faint';
                s.group(role, () => {
                    s.rect(x, y, size * cell - 4, 18, is);
                    if (size > 1 || !s.narrow)
                        s.text(x + (size * cell) / 2 - 2, y + 9, String(i), 'mono');
                });
                if (hash && size * cell > 30)
                    s.text(x + (size * cell) / 2 - 2, y + 27, hash.slice(0, 4), 'note faint');
            });
            let y = 22 + Math.ceil(step.blocks.length / perLine) * 42 + 6;
            const legend = [
                ['draft', 'found'],
                ['new', 'computed'],
                ['known', 'an earlier prompt'],
                ['kept', 'free, cached'],
                ['known', 'free, not cached', 'box dashed faint'],
            ];
            const column = s.narrow ? 118 : 140;
            legend.forEach(([role, words, kind], i) => {
                const x = (i % (s.narrow ? 3 : 5)) * column + 2;
                const below = s.narrow ? 18 * Math.floor(i / 3) : 0;
                s.group(role, () => s.rect(x, y + below - 6, 12, 12, kind || 'box'));
                s.text(x + 18, y + below, words, 'left note');
            });
            y += s.narrow ? 44 : 28;
            const left = 70;
            const longest = Math.max(...asked.map((text) => text.prompt));
            const unit = (s.width - left - (s.narrow ? 60 : 170)) / longest;
            s.text(0, y, 'prompts so far, in tokens', 'left strong');
            answer.steps.slice(0, at + 1).forEach(({ found, computed, lacks }, i) => {
                y += 22;
                s.text(3, y, names[i], i === at ? 'left note strong' : 'left note');
                const said = s.narrow
                    ? `${found} of ${found + computed}`
                    : `${found} of ${found + computed} found`;
                if (lacks) {
                    s.text(left, y, `${said}, and no room`, 'left note');
                    return;
                }
                if (found)
                    s.group('draft', () => s.rect(left, y - 7, found * unit - 1, 14, 'box'));
                s.group('new', () =>
                    s.rect(left + found * unit, y - 7, computed * unit - 1, 14, 'box'),
                );
                s.text(left + (found + computed) * unit + 6, y, said, 'left note');
            });
            y += 26;
            const most = s.narrow ? 12 : 26;
            const free = step.free.slice(0, most).join(' ') + (step.free.length > most ? ' …' : '');
            s.text(0, y, `free list: ${free || 'empty'}`, 'left note');
            s.height = y + 12;
            const gone = step.evicted.length;
            return (
                `${names[at]} finds ${step.found} of its ${step.found + step.computed} prompt tokens.` +
                (step.lacks
                    ? ` It can't run: ${step.lacks} ${step.lacks === 1 ? 'block is' : 'blocks are'} missing.`
                    : '') +
                (gone ? ` ${gone} cached ${gone === 1 ? 'block was' : 'blocks were'} forgotten for it.` : '') +
                ` So far ${step.hits} of ${step.queries} prompt tokens were found.`
            );
        },
    });
})();
