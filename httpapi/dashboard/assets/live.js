// What is live is fetched again every two seconds, and changed in place: open menus, what is written in fields, the
// focus and the selection stay. What could not be fetched stays too, greyed, and a bar says since when and why.

const tickEvery = 2000; // ms
const saidAfter = 2500; // ms without an answer; one that comes later still counts
const leftAfter = 10000; // ms without an answer, before the next try
const savedAfter = 4000; // ms without an answer, before a form is given back

// A node keeps its identity while it is about the same thing: a form that does something else is another form, so that
// a key pressed a moment too late does nothing.
const keyOf = (node) => {
  if (node.id) return `#${node.id}`;
  const of = {
    TR: () => node.querySelector('a')?.getAttribute('href'),
    FORM: () => node.getAttribute('action'),
    SECTION: () => node.querySelector('h2')?.textContent,
    DETAILS: () => node.querySelector('summary')?.textContent,
  }[node.nodeName]?.();
  return `${node.nodeName} ${of || node.className || ''}`;
};

const patch = (old, next) => {
  if (old.isEqualNode(next) || old.matches?.('details.menu[open]')) return;
  if (old.nodeType !== Node.ELEMENT_NODE) {
    old.nodeValue = next.nodeValue;
    return;
  }
  for (const { name } of [...old.attributes]) {
    if (name !== 'open' && !next.hasAttribute(name)) old.removeAttribute(name);
  }
  for (const { name, value } of next.attributes) {
    if (name !== 'open' && old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  patchChildren(old, next);
};

const patchChildren = (old, next) => {
  const pool = new Map();
  for (const node of old.childNodes) {
    const key = keyOf(node);
    if (!pool.has(key)) pool.set(key, []);
    pool.get(key).push(node);
  }
  const pairs = [...next.childNodes].map((node) => [node, pool.get(keyOf(node))?.shift()]);
  for (const unused of [...pool.values()].flat()) {
    if (!unused.matches?.('details.menu[open]')) unused.remove(); // somebody is writing in it
    else pairs.push([unused, unused]);
  }
  let at = old.firstChild;
  for (const [node, mate] of pairs) {
    if (mate && mate === at) at = at.nextSibling;
    else old.insertBefore(mate || node, at);
    if (mate) patch(mate, node);
  }
};

// show shows what another state of this page shows.
const show = (page) => {
  const focused = document.activeElement;
  for (const id of ['frozen', 'live']) patchChildren(document.getElementById(id), page.getElementById(id));
  if (focused.isConnected && focused !== document.activeElement) focused.focus({ preventScroll: true }); // it was moved
};

// say shows a bar that tells why the page is not up to date, or that it is; link is that to the page that signs in.
const say = (text, link) => {
  document.getElementById('live')?.classList.toggle('stale', text !== '');
  const bar = document.getElementById('stale');
  if (bar.textContent === (link ? `${text} Sign in` : text)) return;
  bar.textContent = text;
  if (link) bar.append(' ', Object.assign(document.createElement('a'), { textContent: 'Sign in', ...link }));
};

const silent = 'the server does not answer';
const answered = (status) => (status === 404 ? 'it is gone' : `the server answers ${status}`);

// guard sends the forms that people write in once the server answers and the session lasts: what was written would be
// lost otherwise. Beside them, it says that a part of the page was asked for in vain.
export const guard = () => {
  if (!document.getElementById('asof')) return; // to sign in needs no session
  const lost = (status) => {
    if (status === 401) say('You are signed out, and nothing is saved.', { href: '/login', target: '_blank' });
    else say(`Nothing is saved: ${status ? answered(status) : silent}.`);
  };
  document.addEventListener('submit', async (event) => {
    const form = event.target;
    if (!form.matches('[method=post]:has(textarea, input:not([type=hidden]))') || form.dataset.asked === 'sent') return;
    event.preventDefault();
    if (form.dataset.asked) return; // it was pressed twice
    form.dataset.asked = 'asking';
    const answer = await fetch('/names', { headers: { 'HX-Request': 'true' }, signal: AbortSignal.timeout(savedAfter) })
      .catch(() => ({ status: 0 }));
    form.dataset.asked = answer.ok ? 'sent' : '';
    if (!answer.ok) return lost(answer.status);
    say('');
    form.requestSubmit(event.submitter);
    form.dataset.asked = '';
  });
  document.addEventListener('htmx:afterRequest', (event) => {
    const { status } = event.detail.xhr;
    if (!document.getElementById('live') && (status === 401 || status > 499)) lost(status); // the preview of a schedule
  });
};

// watch keeps the page up to date. dress makes a fetched page look as people see it.
export const watch = (dress, clock) => {
  const live = document.getElementById('live');
  const asof = document.getElementById('asof');
  if (!live || !asof) return;
  let since, misses, asking;
  const fresh = () => {
    since = clock(new Date());
    misses = 0;
    asof.textContent = `as of ${since}`;
    say('');
  };
  const miss = (why, lasts) => {
    misses++;
    if (lasts || misses > 1) say(`Not updated since ${since}: ${why}. Trying again.`);
  };
  let tag = null; // of the state that is shown
  const tick = async () => {
    if (document.hidden || asking) return;
    asking = new AbortController();
    const timers = [setTimeout(miss, saidAfter, silent, true),
      setTimeout(() => asking.abort(), leftAfter)];
    try {
      const answer = await fetch(live.dataset.from, {
        headers: { Accept: 'text/html', 'HX-Request': 'true', ...(tag && { 'If-None-Match': tag }) },
        signal: asking.signal,
      });
      if (answer.status === 304) {
        fresh();
        return;
      }
      const page = new DOMParser().parseFromString(await answer.text(), 'text/html');
      if (answer.status === 401) {
        say('You are signed out.', { href: `/login?next=${encodeURIComponent(location.pathname + location.search)}` });
      } else if (answer.ok && page.getElementById('live')) {
        dress(page);
        show(page);
        tag = answer.headers.get('ETag');
        fresh();
      } else {
        miss(answered(answer.status));
      }
    } catch (error) {
      if (!(error instanceof TypeError || error instanceof DOMException)) throw error;
      miss(silent);
    } finally {
      timers.forEach(clearTimeout);
      asking = null;
    }
  };
  fresh();
  setInterval(tick, tickEvery);
  document.addEventListener('visibilitychange', tick);
};
