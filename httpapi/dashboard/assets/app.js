// The pages work without this. It shows times in the visitor's zone, refreshes what is live, and adds keys.
(() => {
  'use strict';

  const two = (n) => String(n).padStart(2, '0');
  const clock = (at) => `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ` +
    `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;

  // Every instant in the visitor's zone; UTC and the job's zone on hover.
  const times = (root) => {
    for (const element of root.querySelectorAll('time[datetime]')) {
      const at = new Date(element.dateTime);
      if (Number.isNaN(at.getTime())) continue;
      let title = `${at.toISOString().replace('T', ' ').slice(0, 19)} UTC`;
      const zone = element.dataset.zone;
      if (zone && zone !== 'UTC') {
        try {
          title += `\n${at.toLocaleString('sv-SE', { timeZone: zone })} ${zone}`;
        } catch { /* a zone that the browser does not know */ }
      }
      element.title = title;
      element.textContent = clock(at);
    }
  };

  // On narrow screens a table has no head, so each cell says what it is.
  const labels = (root) => {
    for (const table of root.querySelectorAll('table.list')) {
      const heads = [...table.querySelectorAll('thead th')].map((head) => head.textContent);
      for (const row of table.tBodies[0]?.rows || []) {
        [...row.cells].forEach((cell, i) => {
          if (i > 0 && heads[i] && cell.textContent.trim() && !cell.querySelector('button')) cell.dataset.label = heads[i];
        });
      }
    }
  };
  // What goes on in time is wider than a narrow screen, and is first seen at its end.
  let seen = null;
  const ends = () => {
    for (const part of document.querySelectorAll('.scroll.end')) part.scrollLeft = seen ?? part.scrollWidth;
  };
  document.addEventListener('htmx:beforeSwap', () => { seen = document.querySelector('.scroll.end')?.scrollLeft ?? null; });
  const dress = (root) => { times(root); labels(root); ends(); };
  dress(document);
  document.addEventListener('htmx:afterSwap', (event) => dress(event.target.parentElement || document));

  // On narrow screens the pages' names are a line that scrolls.
  document.querySelector('header nav [aria-current]')?.scrollIntoView({ block: 'nearest', inline: 'center' });

  // At / the API answers whoever does not ask for a page.
  document.addEventListener('htmx:configRequest', (event) => { event.detail.headers.Accept = 'text/html'; });

  // What is live is fetched again every two seconds, unless nobody sees it, a menu is open, or somebody uses a field or
  // button in it. What could not be fetched stays, greyed, and a bar says since when and why.
  const asof = document.getElementById('asof');
  const stale = document.getElementById('stale');
  const hour = (at) => clock(at).slice(11);
  let fresh = new Date();
  let missed = 0;
  let why = 'the server does not answer';
  const say = (text, href) => {
    const whole = href ? `${text} Sign in` : text;
    document.getElementById('live')?.classList.toggle('stale', text !== '');
    if (stale.textContent === whole) return;
    stale.textContent = text;
    if (!href) return;
    const link = document.createElement('a');
    link.href = href;
    link.textContent = 'Sign in';
    stale.append(' ', link);
  };
  const miss = () => { if (missed >= 2) say(`Not updated since ${hour(fresh)}: ${why}. Trying again.`); };
  const busy = (live) => live.querySelector('details.menu[open]') ||
    (live.contains(document.activeElement) && document.activeElement.matches('input, select, textarea, button, summary'));
  const tick = () => {
    const live = document.getElementById('live');
    if (document.hidden || !live || !window.htmx) return;
    const paused = busy(live);
    asof.textContent = `as of ${hour(fresh)}${paused ? ', paused' : ''}`;
    if (paused) return;
    if (missed > 2) miss(); // no answer yet to any of them
    missed++;
    window.htmx.trigger(live, 'tick');
  };
  setInterval(tick, 2000);
  if (asof && document.getElementById('live')) asof.textContent = `as of ${hour(fresh)}`;

  // A link that has the focus keeps it.
  let held = null;
  document.addEventListener('htmx:beforeSwap', (event) => {
    const { xhr, target } = event.detail;
    if (target.id !== 'live') return;
    if (xhr.status === 200 && !xhr.responseText.includes('id="live"')) event.detail.shouldSwap = false;
    held = target.contains(document.activeElement) ? document.activeElement.getAttribute('href') : null;
  });
  document.addEventListener('htmx:afterSwap', () => {
    const live = document.getElementById('live');
    if (!held || !live) return;
    const link = [...live.querySelectorAll('a')].find((a) => a.getAttribute('href') === held);
    link?.focus({ preventScroll: true });
    link?.closest('.list tbody tr')?.classList.add('here');
    held = null;
  });
  document.addEventListener('htmx:afterRequest', (event) => {
    const { xhr, target } = event.detail;
    if (target?.id !== 'live') return;
    if (xhr.status === 401) {
      missed = 0;
      const next = encodeURIComponent(location.pathname + location.search);
      say('You are signed out.', `/login?next=${next}`);
    } else if (xhr.status === 200 && xhr.responseText.includes('id="live"')) {
      fresh = new Date();
      missed = 0;
      asof.textContent = `as of ${hour(fresh)}`;
      say('');
    } else {
      why = `the server does not answer${xhr.status ? ` (${xhr.status})` : ''}`;
      miss();
    }
  });

  document.addEventListener('click', (event) => {
    const button = event.target.closest('button.copy');
    if (button) {
      navigator.clipboard.writeText(document.getElementById(button.dataset.copy).textContent);
      button.textContent = 'Copied';
      return;
    }
    for (const menu of document.querySelectorAll('details.menu[open]')) {
      if (!menu.contains(event.target)) menu.open = false;
    }
  });

  const places = { o: '/', j: '/jobs', r: '/runs', t: '/timeline', f: '/forecast', d: '/dead-letters', q: '/queues', a: '/audit', s: '/settings' };
  let went = false;
  let row = -1;
  const move = (by) => {
    const rows = [...document.querySelectorAll('.list tbody tr')];
    if (rows.length === 0) return;
    rows[row]?.classList.remove('here');
    row = Math.min(Math.max(row + by, 0), rows.length - 1);
    rows[row].classList.add('here');
    rows[row].scrollIntoView({ block: 'nearest' });
    rows[row].querySelector('a')?.focus();
  };
  document.addEventListener('keydown', (event) => {
    if (event.key === 'Escape') {
      for (const menu of document.querySelectorAll('details.menu[open]')) menu.open = false;
      return;
    }
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.closest('input, textarea, select')) return;
    if (went) {
      went = false;
      if (places[event.key]) location.href = places[event.key];
      return;
    }
    switch (event.key) {
      case '/': document.getElementById('search')?.focus(); event.preventDefault(); break;
      case 'g': went = true; setTimeout(() => { went = false; }, 1500); break;
      case 'j': move(1); break;
      case 'k': move(-1); break;
      case '?': document.querySelector('footer').scrollIntoView(); break;
    }
  });
})();
