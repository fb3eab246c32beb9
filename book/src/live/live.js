/* The book's live figures: one way to make one, and the worker that runs the lessons.

   A page has <div class="live" data-live="NAME"> under a still picture. When the figure is first
   touched, figures/NAME.js is loaded, and with it the lessons (parts/engine.js: WebAssembly, gzipped, as base64)
   and the model (parts/model.js), which the book tool writes. Everything comes in classic scripts and the worker from a Blob, because from
   file:// a browser loads neither modules nor workers nor data.

   A figure is candecode.figure(NAME, { controls, ask, draw, … }): see book/README.md. */
(function () {
    'use strict';
    if (window.candecode) return;

    const folder = document.currentScript.src.replace(/[^/]*$/, '');
    const PATIENCE = 10000; // ms: a worker that does not answer for so long is ended
    const figures = {};
    const parts = {};

    // ---------------------------------------------------------------- scripts

    const scripts = {};
    /** Loads a classic script once. */
    function script(name) {
        scripts[name] =
            scripts[name] ||
            new Promise((resolve, reject) => {
                const element = document.createElement('script');
                element.src = folder + name;
                element.onload = resolve;
                element.onerror = () => {
                    delete scripts[name];
                    reject(new Error(`the file live/${name} of this book is missing`));
                };
                document.head.append(element);
            });
        return scripts[name];
    }

    // ---------------------------------------------------------------- the worker

    /** The worker's whole program: it is made a Blob from its own text. */
    function program() {
        let lessons, closed;
        const utf8 = { read: new TextDecoder(), write: new TextEncoder() };
        const bytes = async (base64) => {
            const packed = Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));
            const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream('gzip'));
            return new Uint8Array(await new Response(stream).arrayBuffer());
        };
        const write = (data) => {
            const at = lessons.reserve(data.length);
            new Uint8Array(lessons.memory.buffer, at, data.length).set(data);
        };
        const said = () =>
            utf8.read.decode(
                new Uint8Array(lessons.memory.buffer, lessons.answer(), lessons.answer_len()),
            );
        const answer = (run) => {
            try {
                run();
                return JSON.parse(said());
            } catch (error) {
                return { error: said() || String(error), broken: true }; // a panic ends the instance
            }
        };
        const start = async ({ engine, model }) => {
            const module = await WebAssembly.compile(await bytes(engine));
            // What the lessons ask of the page: random numbers, for keys of hash tables. (getrandom
            // would have them through wasm-bindgen, whose other functions are never called.)
            const imports = {};
            for (const { module: from, name } of WebAssembly.Module.imports(module)) {
                imports[from] = imports[from] || {};
                imports[from][name] = () => {
                    throw new Error(`${from}.${name} is not there in a page`);
                };
                if (name.includes('getRandomValues')) {
                    imports[from][name] = (at, length) => {
                        self.crypto.getRandomValues(
                            new Uint8Array(lessons.memory.buffer, at, length),
                        );
                    };
                }
            }
            const instance = async () => (await WebAssembly.instantiate(module, imports)).exports;
            lessons = await instance();
            const files = await Promise.all(
                [model.config, model.tokenizer, model.weights].map(bytes),
            );
            const opened = answer(() => {
                files.forEach(write);
                lessons.open_model();
            });
            if (opened.error) {
                // A day that the model needs isn't written yet, or fails. Some figures need no model.
                closed = opened.error;
                if (opened.broken) lessons = await instance();
            }
            return { started: true };
        };
        self.onmessage = async ({ data }) => {
            if (data.engine) {
                const started = await start(data).catch((error) => ({
                    error: String(error),
                    broken: true,
                }));
                self.postMessage(started);
            } else {
                const answered = answer(() => {
                    write(utf8.write.encode(JSON.stringify(data)));
                    lessons.call();
                });
                if (answered.error === 'no model is open') answered.error = closed;
                self.postMessage(answered);
            }
        };
    }

    /** The lessons in a worker of their own: questions are answered one after another. */
    class Lessons {
        constructor(part) {
            this.part = part;
            this.queue = [];
        }

        /** Answers a question, or throws the words of what went wrong. */
        ask(question) {
            return new Promise((resolve, reject) => {
                this.queue.push({ question, resolve, reject });
                this.next();
            });
        }

        async next() {
            if (this.busy || !this.queue.length) return;
            this.busy = this.queue.shift();
            const { question, resolve, reject } = this.busy;
            try {
                if (!this.worker) await this.start();
                resolve(await this.send(question));
            } catch (error) {
                reject(error);
            }
            this.busy = null;
            this.next();
        }

        async start() {
            if (typeof WebAssembly !== 'object' || typeof DecompressionStream !== 'function') {
                throw new Error('This browser has no WebAssembly, so the picture stays as it is.');
            }
            await Promise.all([script(`parts/${this.part}.js`), script('parts/model.js')]);
            const blob = new Blob([`(${program})()`], { type: 'text/javascript' });
            const url = URL.createObjectURL(blob);
            this.worker = new Worker(url);
            await this.send({ engine: parts[this.part], model: parts.model });
            URL.revokeObjectURL(url);
        }

        send(message) {
            const worker = this.worker;
            return new Promise((resolve, reject) => {
                let timer;
                const stop = (words) => {
                    worker.terminate();
                    if (this.worker === worker) this.worker = null;
                    reject(new Error(words));
                };
                const wait = () => {
                    timer = setTimeout(() => {
                        if (document.hidden) return wait(); // a tab in the background runs when it may
                        stop(
                            'No answer for ten seconds, so the lessons were ended. They start afresh with the next change.',
                        );
                    }, PATIENCE);
                };
                wait();
                worker.onerror = (event) => {
                    clearTimeout(timer);
                    stop(event.message || 'the worker could not be started');
                };
                worker.onmessage = ({ data }) => {
                    clearTimeout(timer);
                    if (data.broken) stop(data.error);
                    else if (data.error) reject(new Error(data.error));
                    else resolve(data);
                };
                worker.postMessage(message);
            });
        }
    }

    const engines = {};
    /** The lessons of a part: `engine`, or those of a known mistake. */
    const lessons = (part) => (engines[part] = engines[part] || new Lessons(part));

    // ---------------------------------------------------------------- elements

    const SVG = 'http://www.w3.org/2000/svg';

    function html(name, attributes, ...children) {
        const element = document.createElement(name);
        for (const [key, value] of Object.entries(attributes || {})) {
            if (key.startsWith('on')) element.addEventListener(key.slice(2), value);
            else if (value !== null && value !== undefined && value !== false) {
                element.setAttribute(key, value === true ? '' : value);
            }
        }
        element.append(...children.filter((child) => child !== null && child !== undefined));
        return element;
    }

    /** A picture being drawn: shapes in the house style, by class. */
    class Picture {
        constructor(width) {
            this.width = width;
            this.narrow = width < 600;
            this.height = 0;
            this.svg = document.createElementNS(SVG, 'svg');
            this.into = this.svg;
            this.acts = false;
        }

        add(name, attributes, text) {
            const element = document.createElementNS(SVG, name);
            for (const [key, value] of Object.entries(attributes)) {
                if (value === null || value === undefined || value === '') continue;
                element.setAttribute(
                    key,
                    typeof value === 'number' ? Math.round(value * 100) / 100 : value,
                );
            }
            if (text !== undefined) element.textContent = text;
            this.into.append(element);
            return element;
        }

        group(kind, draw) {
            const outer = this.into;
            this.into = this.add('g', { class: kind });
            draw();
            const group = this.into;
            this.into = outer;
            return group;
        }

        text(x, y, text, kind) {
            return this.add('text', { x, y, class: kind }, text);
        }
        rect(x, y, width, height, kind, more) {
            return this.add('rect', {
                x,
                y,
                width: Math.max(width, 0),
                height: Math.max(height, 0),
                class: kind,
                ...more,
            });
        }
        path(d, kind, more) {
            return this.add('path', { d, class: kind, ...more });
        }
        circle(cx, cy, r, kind, more) {
            return this.add('circle', { cx, cy, r, class: kind, ...more });
        }

        /** A box with its label, as a token is drawn. */
        box(x, y, width, height, label, role, kind) {
            return this.group(role, () => {
                this.rect(x, y, width, height, 'box');
                if (label !== undefined && label !== '') {
                    this.text(
                        x + width / 2,
                        y + height / 2,
                        clip(label, width / 8),
                        kind || 'mono',
                    );
                }
            });
        }

        /** Makes a part of the picture answer to a press: by mouse, touch, Enter or space. */
        press(element, label, act) {
            this.acts = true;
            element.setAttribute('role', 'button');
            element.setAttribute('tabindex', '0');
            element.setAttribute('aria-label', label);
            element.classList.add('live-act');
            element.dataset.act = label;
            element.addEventListener('click', act);
            element.addEventListener('keydown', (event) => {
                if (event.key === 'Enter' || event.key === ' ') {
                    event.preventDefault();
                    act(event);
                }
            });
            return element;
        }

        /** Makes a part of the picture draggable: `move` gets the pointer's place in the picture's units,
        and `step` for an arrow key the way, dx, dy. The name stays while the value changes,
        `{ now, min, max, text }`, so that the part has the focus after it has moved. */
        drag(element, name, value, move, step) {
            this.acts = true;
            element.setAttribute('role', 'slider');
            element.setAttribute('tabindex', '0');
            element.setAttribute('aria-label', name);
            for (const [key, is] of Object.entries(value)) {
                element.setAttribute(`aria-value${key}`, is);
            }
            element.classList.add('live-drag');
            element.dataset.act = name;
            // Each move draws the picture anew, and a picture that's gone has no place: the newest one's counts.
            const place = (event, home) => {
                const frame = home.querySelector('svg').getBoundingClientRect();
                const scale = this.width / frame.width;
                return [(event.clientX - frame.left) * scale, (event.clientY - frame.top) * scale];
            };
            element.addEventListener('pointerdown', (event) => {
                if (event.button !== 0 || !event.isPrimary) return;
                event.preventDefault();
                const home = this.svg.parentElement;
                if (!home) return;
                const moved = (event) => {
                    if (!event.isPrimary) return; // a second finger
                    if (event.buttons) move(...place(event, home));
                    else ended(event); // a menu has kept the release
                };
                const ended = (event) => {
                    if (!event.isPrimary) return;
                    window.removeEventListener('pointermove', moved);
                    window.removeEventListener('pointerup', ended);
                    window.removeEventListener('pointercancel', ended);
                };
                window.addEventListener('pointermove', moved);
                window.addEventListener('pointerup', ended);
                window.addEventListener('pointercancel', ended);
                moved(event);
            });
            const arrows = {
                ArrowLeft: [-1, 0],
                ArrowRight: [1, 0],
                ArrowUp: [0, -1],
                ArrowDown: [0, 1],
            };
            element.addEventListener('keydown', (event) => {
                const way = arrows[event.key];
                if (!way || !step) return;
                event.preventDefault();
                step(...way);
            });
            return element;
        }

        /** The finished picture. */
        finish(label) {
            this.svg.setAttribute('viewBox', `0 0 ${this.width} ${Math.ceil(this.height)}`);
            this.svg.setAttribute('role', this.acts ? 'group' : 'img');
            this.svg.setAttribute('aria-label', label);
            return this.svg;
        }
    }

    /** A text of at most `most` characters. */
    function clip(text, most) {
        const all = [...String(text)];
        most = Math.max(1, Math.floor(most));
        return all.length <= most
            ? all.join('')
            : all.slice(0, Math.max(1, most - 1)).join('') + '…';
    }

    /** A share in words: 0.256 is "25.6%". */
    function percent(share) {
        const value = share * 100;
        if (value > 0 && value < 0.01) return '< 0.01%';
        return `${value >= 99.95 ? Math.round(value * 100) / 100 : value.toFixed(value < 1 ? 2 : 1)}%`;
    }

    /** Values and state as they are now: they go on changing. */
    const copy = (data) => JSON.parse(JSON.stringify(data));

    // ---------------------------------------------------------------- a figure on the page

    /** In a book of `serve --mine`: whose code answers in this chapter. */
    function whose() {
        const day = Number((location.pathname.match(/day(\d\d)_/) || [])[1]);
        return parts.about.yours.includes(day)
            ? `Your day ${day} answers.`
            : `Your day ${day} is not written yet, so the reference answers.`;
    }

    /** The whole answer to what a figure asks with these values. */
    async function answerTo(plan, asked, figure) {
        const ask = (question) => lessons(asked.part).ask(question);
        const question = plan.ask(asked.values, asked.state);
        const answer = question ? await ask(question) : {};
        if (plan.more) await plan.more(answer, asked, ask, figure);
        return answer;
    }

    class Figure {
        constructor(place) {
            this.place = place;
            this.name = place.dataset.live;
            this.frame = place.closest('figure') || place.parentElement;
            this.still = this.frame.querySelector(':scope > svg');
            this.caption = this.frame.querySelector(':scope > figcaption');
            const begin = () => this.begin();
            this.starter = html(
                'button',
                { type: 'button', class: 'live-start', onclick: begin },
                'Bring this figure to life',
            );
            place.replaceChildren(this.starter);
            if (this.still) {
                this.still.addEventListener('click', begin, { once: true });
                this.still.classList.add('live-still');
            }
        }

        async begin() {
            if (this.begun) return;
            this.begun = true;
            this.starter.disabled = true;
            this.starter.textContent = 'Loading the lessons and the model …';
            try {
                await Promise.all([script(`figures/${this.name}.js`), script('parts/about.js')]);
                this.make(figures[this.name]);
            } catch (error) {
                this.begun = false;
                this.starter.disabled = false;
                this.starter.textContent = 'Bring this figure to life';
                this.place.append(
                    html('p', { class: 'live-error', role: 'status' }, error.message),
                );
            }
        }

        make(plan) {
            this.plan = plan;
            this.values = {};
            this.state = copy(plan.state || {});
            this.inputs = {};
            const controls = html('div', { class: 'live-controls' });
            const buttons = html('div', { class: 'live-buttons' });
            for (const control of plan.controls || []) {
                const element = this.control(control);
                if (control.kind !== 'button') controls.append(element);
                else {
                    buttons.append(element);
                    controls.append(buttons);
                }
            }
            this.picture = html('div', { class: 'live-picture' });
            this.said = html(
                'p',
                { class: 'live-said', 'aria-live': 'polite' },
                'Loading the lessons and the model …',
            );
            this.error = html('p', { class: 'live-error', role: 'status', hidden: true });
            const panel = html(
                'div',
                { class: 'live-panel' },
                html('p', { class: 'live-question' }, plan.question),
                controls,
                this.picture,
                this.said,
                this.error,
                html('p', { class: 'live-try' }, html('strong', {}, 'Try this. '), plan.tryThis),
            );
            if (plan.note) panel.append(html('p', { class: 'live-whose' }, plan.note));
            const part = ({ mistake }) => `mistake-${mistake.replace(' ', '-')}`;
            const there = (plan.mistakes || []).filter((known) =>
                parts.about.mistakes.includes(part(known)),
            );
            if (there.length)
                panel.append(
                    this.mistakes(
                        there.map((known) => ({ part: part(known), label: known.label })),
                    ),
                );
            if (parts.about.yours) panel.append(html('p', { class: 'live-whose' }, whose()));
            if (this.still) {
                const back = html(
                    'button',
                    { type: 'button', class: 'live-back', onclick: () => this.toggle(back) },
                    'Show the still picture',
                );
                panel.append(back);
            }
            // mdBook turns pages with the arrow keys, and searches with others: not from a control.
            panel.addEventListener('keydown', (event) => event.stopPropagation());
            this.place.replaceChildren(panel);
            new ResizeObserver(() => this.redraw(true)).observe(this.place);
            this.refresh();
            const first = panel.querySelector('input, select, button');
            if (first) first.focus({ preventScroll: true });
        }

        toggle(button) {
            const hide = !this.still.classList.contains('live-away');
            this.hide(hide);
            button.textContent = hide ? 'Show the still picture' : 'Hide the still picture';
        }

        hide(away) {
            for (const element of [this.still, this.caption]) {
                if (element) element.classList.toggle('live-away', away);
            }
        }

        control(control) {
            const { name, label, kind } = control;
            const id = `live-${this.name}-${name}`;
            const changed = (value) => {
                this.values[name] = value;
                if (control.change) control.change(this, value);
                this.refresh();
            };
            this.values[name] = control.value;
            if (kind === 'button') {
                const press = () => this.pressed(control);
                const button = html('button', { type: 'button', id, onclick: press }, label);
                this.inputs[name] = button;
                return button;
            }
            let input,
                out = null;
            if (kind === 'select') {
                input = html(
                    'select',
                    { id, onchange: () => changed(input.value) },
                    ...control.options.map((option) =>
                        html(
                            'option',
                            { value: option, selected: option === control.value },
                            option,
                        ),
                    ),
                );
            } else if (kind === 'check') {
                input = html('input', {
                    id,
                    type: 'checkbox',
                    checked: control.value,
                    onchange: () => changed(input.checked),
                });
            } else if (kind === 'range') {
                const show = control.show || ((value) => String(value));
                out = html('output', { for: id }, show(control.value));
                input = html('input', {
                    id,
                    type: 'range',
                    min: control.min,
                    max: control.max,
                    step: control.step,
                    value: control.value,
                    'aria-valuetext': show(control.value),
                    oninput: () => {
                        this.show(control, Number(input.value));
                        changed(Number(input.value));
                    },
                });
            } else {
                input = html('input', {
                    id,
                    type: 'text',
                    value: control.value,
                    autocomplete: 'off',
                    spellcheck: 'false',
                    dir: 'auto',
                    oninput: () => changed(input.value),
                });
            }
            this.inputs[name] = input;
            return html(
                'label',
                { class: `live-control live-${kind}`, for: id },
                html('span', {}, label),
                input,
                out,
            );
        }

        /** A button was pressed. What it does with an answer (`answered`) waits for the newest. */
        pressed(control) {
            if (this.asking && control.answered) {
                this.waits = control;
                return;
            }
            control.press(this, this.failed ? null : this.answer);
            this.refresh();
        }

        /** Sets a control from the picture: a bar that was dragged, a row that was pressed. */
        set(name, value) {
            this.values[name] = value;
            const input = this.inputs[name];
            if (!input) return;
            if (input.type === 'checkbox') input.checked = value;
            else input.value = value;
            this.show(
                this.plan.controls.find((control) => control.name === name),
                value,
            );
        }

        /** Writes a slider's value beside it. */
        show({ name, kind, show = String }, value) {
            if (kind !== 'range') return;
            const words = show(value);
            this.inputs[name].parentElement.querySelector('output').textContent = words;
            this.inputs[name].setAttribute('aria-valuetext', words);
        }

        /** Controls that make no difference now are switched off. */
        enable() {
            for (const { name, when } of this.plan.controls || []) {
                if (when) this.inputs[name].disabled = !when(this.values, this.state);
            }
        }

        /** A switch for known mistakes: each a build of its own. */
        mistakes(list) {
            const id = `live-${this.name}-mistake`;
            const select = html(
                'select',
                {
                    id,
                    onchange: () => {
                        this.part = select.value || 'engine';
                        this.refresh();
                    },
                },
                html('option', { value: '' }, 'the lesson as it is'),
                ...list.map(({ part, label }) => html('option', { value: part }, label)),
            );
            return html(
                'label',
                { class: 'live-control live-select live-break', for: id },
                html('span', {}, 'Break it'),
                select,
            );
        }

        /** Asks the lessons what the controls want to know, and draws what they say. While a question is under
        way only the newest change waits; the picture stays that of the last answer, which keeps
        the values that it answers. So it can be drawn at any time, whatever has changed since. */
        async refresh() {
            if (this.asking) {
                this.again = true;
                return;
            }
            this.asking = true;
            delete this.place.dataset.state; // until there is an answer
            do {
                this.again = false;
                this.enable();
                try {
                    const part = this.part || 'engine';
                    const asked = copy({ values: this.values, state: this.state, part });
                    const answer = await answerTo(this.plan, asked, this);
                    Object.assign(this, { answer, asked, failed: false });
                    this.error.hidden = true;
                    this.redraw();
                } catch (error) {
                    // Words for a reader are a plain Error. Anything else is a figure's own mistake.
                    if (error.name !== 'Error') console.error(error);
                    this.failed = true;
                    this.error.textContent = error.message;
                    this.error.hidden = false;
                    this.picture.classList.add('live-old');
                    if (!this.drawn) this.said.textContent = '';
                }
            } while (this.again);
            this.asking = false;
            this.place.dataset.state = this.failed ? 'error' : 'alive';
            const waits = this.waits;
            delete this.waits;
            if (waits) this.pressed(waits);
        }

        redraw(onlyIfResized) {
            if (!this.answer) return;
            const width = this.place.clientWidth < 600 ? 360 : 720;
            if (onlyIfResized && (width === this.width || !this.drawn)) return;
            this.width = width;
            const act = document.activeElement;
            const held = this.picture.contains(act) ? act.dataset.act : null;
            const picture = new Picture(width);
            const said = this.plan.draw(this.answer, picture, this, this.asked);
            this.picture.replaceChildren(picture.finish(said));
            this.picture.classList.toggle('live-old', this.failed);
            this.said.textContent = said;
            if (held) {
                const again = [...this.picture.querySelectorAll('[data-act]')].find(
                    (e) => e.dataset.act === held,
                );
                if (again) again.focus({ preventScroll: true });
            }
            if (!this.drawn) this.hide(true);
            this.drawn = true;
        }
    }

    // ---------------------------------------------------------------- what a figure's file calls

    window.candecode = {
        /** Defines a figure. */
        figure(name, plan) {
            figures[name] = plan;
        },
        /** Takes what about.js, engine.js, model.js and the files of mistakes carry. */
        part(name, data) {
            parts[name] = data;
        },
        /** Loads a file of data, as heads.js. */
        async data(name) {
            await script(`${name}.js`);
            return parts[name];
        },
        /** Asks the lessons directly: for tests. */
        ask: (question, part) => lessons(part || 'engine').ask(question),
        /** Draws a figure once, at a width: for the still pictures and for tests. */
        async still(name, width) {
            await script(`figures/${name}.js`);
            const plan = figures[name];
            const figure = {
                values: {},
                state: copy(plan.state || {}),
                part: 'engine',
            };
            for (const control of plan.controls || []) figure.values[control.name] = control.value;
            const answer = await answerTo(plan, figure, figure);
            const picture = new Picture(width || 720);
            return picture.finish(plan.draw(answer, picture, figure, figure)).outerHTML;
        },
        percent,
        clip,
    };

    const start = () => {
        for (const place of document.querySelectorAll('.live[data-live]')) new Figure(place);
    };
    if (document.readyState === 'loading') document.addEventListener('DOMContentLoaded', start);
    else start();
})();
