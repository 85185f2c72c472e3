// The pages work without this. It tells the visitor's zone, refreshes what is live, and adds keys.
import { guard, watch } from './live.js';

// The server writes times in the zone of this browser, which it learns from here. A page that was fetched without it
// is fetched again, once.
const zone = Intl.DateTimeFormat().resolvedOptions().timeZone || 'UTC';
const clock = () => decodeURIComponent(/(?:^|; )zone=([^;]*)/.exec(document.cookie)?.[1] || '').split(':');
const [kind, known] = clock();
if (known !== zone) {
  const safe = location.protocol === 'https:' ? '; Secure' : '';
  document.cookie = `zone=${encodeURIComponent(`${kind || 'local'}:${zone}`)}; Path=/; Max-Age=31536000; SameSite=Lax${safe}`;
  if (clock()[1] === zone && 'again' in document.body.dataset) location.reload();
}

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
labels(document);
// What goes on in time is wider than a narrow screen, and is first seen at its end.
for (const part of document.querySelectorAll('.scroll.end')) part.scrollLeft = part.scrollWidth;
document.addEventListener('htmx:afterSwap', (event) => labels(event.target.parentElement || document));

// On narrow screens the pages' names are a line that scrolls.
document.querySelector('.places [aria-current]')?.scrollIntoView({ block: 'nearest', inline: 'center' });

// At / the API answers whoever does not ask for a page.
document.addEventListener('htmx:configRequest', (event) => { event.detail.headers.Accept = 'text/html'; });

guard();
watch(labels, (at) => at.toLocaleTimeString('sv-SE', { timeZone: document.body.dataset.zone }));

document.addEventListener('click', (event) => {
  const link = event.target.closest('a.copy');
  if (link && navigator.clipboard) { // without, it is opened, and its address can be copied
    event.preventDefault();
    navigator.clipboard.writeText(link.href);
    link.textContent = 'Copied';
    return;
  }
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
const move = (by) => {
  const links = [...document.querySelectorAll('.list tbody tr')].map((row) => row.querySelector('a')).filter(Boolean);
  const here = document.activeElement.closest('.list tbody tr')?.querySelector('a');
  const link = links[Math.min(Math.max(links.indexOf(here) + by, 0), links.length - 1)];
  link?.focus();
  link?.closest('tr').scrollIntoView({ block: 'nearest' });
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
    case '?': document.getElementById('keys')?.showModal(); break;
  }
});
