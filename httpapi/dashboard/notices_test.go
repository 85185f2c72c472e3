package dashboard

import "testing"

// Who was told of what is on the job's page and the notice's own, and who takes no notices is on the overview.
func TestPagesSayWhoWasToldAndWhoTakesNothing(t *testing.T) {
	t.Parallel()
	s := serve(t, true)
	b := s.browser()
	b.create("daily")
	b.get("/").want(200).hides("Recipients that take no notices")
	s.execute(`
		INSERT INTO punctual.outbox (id, tenant, format, url, secret, template, due_at, failing_since, http_status)
		SELECT '019ad98a-2a60-8d07-9c52-7b0f1e3d4a86', tenant, 'slack', 'https://hooks.example.com/T000', '', '', now(),
		       now(), 404
		FROM punctual.jobs WHERE name = 'daily'`)
	s.execute(`
		INSERT INTO punctual.notice_messages (id, tenant, format, url, happened_at, headline, events, jobs)
		SELECT '019ad98a-2a60-8d07-9c52-7b0f1e3d4a87', tenant, 'slack', 'https://hooks.example.com/T000', now(),
		       'Job daily has dead runs', '{dead}', ARRAY[id]
		FROM punctual.jobs WHERE name = 'daily'`)
	sound(b.get("/").want(200).shows("Needs attention", "Recipients that take no notices", "Slack hooks.example.com", "404"))
	sound(b.get("/jobs/daily/notices").want(200).shows("When, UTC</th>", "Event</th>", "dead <small>", "Slack hooks.example.com"))
	sound(b.get("/notices/019ad98a-2a60-8d07-9c52-7b0f1e3d4a87").want(200).shows("Job daily has dead runs", ">daily</a>"))
	b.get("/notices/019ad98a-2a60-8d07-9c52-7b0f1e3d4a88").want(404)
}
