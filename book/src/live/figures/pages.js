/* Day 21, pages: a pool of blocks, and the requests that take them and return them. */
(function () {
    'use strict';
    const { figure } = window.candecode;
    const REQUESTS = [
        { name: 'A', prompt: 7, new: 12, at: 0, role: 'kept' },
        { name: 'B', prompt: 6, new: 8, at: 1, role: 'new' },
        { name: 'C', prompt: 3, new: 16, at: 3, role: 'draft' },
        { name: 'D', prompt: 10, new: 6, at: 6, role: 'known' },
    ];
    const name = (table, samples) =>
        REQUESTS[table.request].name +
        (table.request === 1 && samples > 1 ? table.sample + 1 : '');

    figure('pages', {
        question: 'Who holds which block, and what happens when one is shared, or none is left?',
        tryThis:
            'Move through the steps, and watch where the freed blocks go in the free list. Then give B three samples. ' +
            'How many blocks do they share right after its prompt, and how many one step later? At last take blocks away until a text is stuck.',
        controls: [
            {
                name: 'step',
                label: 'step',
                kind: 'range',
                min: 0,
                max: 30,
                step: 1,
                value: 6,
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
                min: 16,
                max: 96,
                step: 8,
                value: 64,
            },
            {
                name: 'samples',
                label: 'samples of B',
                kind: 'range',
                min: 1,
                max: 4,
                step: 1,
                value: 1,
            },
        ],
        ask: (v) => ({
            ask: 'pages',
            blocks: v.positions / Number(v.size),
            block_size: Number(v.size),
            requests: REQUESTS.map((request, i) => ({
                prompt: request.prompt,
                new: request.new,
                at: request.at,
                samples: i === 1 ? v.samples : 1,
            })),
        }),

        draw(answer, s, f, { values }) {
            const size = Number(values.size);
            const at = Math.min(values.step, answer.steps.length - 1);
            const { tables, holders, free, waiting } = answer.steps[at];
            const across = s.narrow ? 16 : 32; // slots in a line
            const cell = Math.floor((s.width - 4) / across);
            const perLine = across / size;
            const wide = (size * cell - 6) / size; // a slot: blocks have a gap between them
            const block = (i) => ({
                x: (i % perLine) * size * cell + 2,
                y: 26 + Math.floor(i / perLine) * 46,
            });
            s.text(0, 10, `the pool after step ${at}: dashed slots are unused`, 'left note');
            holders.forEach((count, i) => {
                const { x, y } = block(i);
                const of = tables.filter((table) => table.blocks.includes(i));
                const used = Math.max(
                    0,
                    ...of.map((t) => Math.min(size, t.len - t.blocks.indexOf(i) * size)),
                );
                const role = of.length ? REQUESTS[of[0].request].role : 'known';
                s.group(role, () => {
                    for (let slot = 0; slot < size; slot++)
                        s.rect(
                            x + slot * wide,
                            y,
                            wide - 2,
                            18,
                            slot < used ? 'box' : 'box dashed faint',
                        );
                });
                const said = of.length
                    ? REQUESTS[of[0].request].name + (count > 1 ? `×${count}` : '')
                    : String(i);
                if (size > 1 || !s.narrow)
                    s.text(x + (size * cell) / 2, y + 27, said, of.length ? 'note' : 'note faint');
            });
            let y = 26 + Math.ceil(holders.length / perLine) * 46 + 8;
            s.text(0, y, 'block tables', 'left strong');
            const clip = (list, most) =>
                list.slice(0, most).join(' ') + (list.length > most ? ' …' : '');
            for (const table of tables) {
                y += 20;
                s.text(
                    0,
                    y,
                    `${name(table, values.samples)}: [${clip(table.blocks, s.narrow ? 8 : 18)}], ` +
                        `${table.len} positions${table.stuck ? ', stuck: no free block' : ''}`,
                    'left note',
                );
            }
            for (const id of waiting) {
                y += 20;
                s.text(0, y, `${REQUESTS[id].name} waits for its prompt’s blocks`, 'left note faint');
            }
            y += 24;
            s.text(
                0,
                y,
                `free list: ${free.length ? clip(free, s.narrow ? 12 : 26) : 'empty'}`,
                'left note',
            );
            s.height = y + 12;
            const inUse = holders.filter((count) => count > 0).length;
            const shared = holders.filter((count) => count > 1).length;
            const stuck = tables.filter((table) => table.stuck).length;
            return (
                `${inUse} of ${holders.length} blocks are in use, ${shared} of them shared.` +
                (stuck ? ` ${stuck} of ${tables.length} sequences can't go on.` : '') +
                (values.step > at ? ' All requests have ended.' : '')
            );
        },
    });
})();
