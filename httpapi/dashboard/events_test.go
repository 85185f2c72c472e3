package dashboard

import "testing"

func TestThePagesOfEvents(t *testing.T) {
	t.Parallel()
	s := serve(t, true)
	b := s.browser()
	b.get("/jobs").want(200).shows(`href="/events"`)
	b.create("book", "kind", "event", "cron", "", "timezone", "", "event", "invoice.paid")
	sound(b.get("/events").want(200).shows(`href="/events/invoice.paid"`))
	sound(b.get("/events/invoice.paid").want(200).shows("Not emitted yet"))
	s.execute(`SELECT punctual.write_event(id, 'invoice.paid', '{"n":17}', 'the shop') FROM punctual.tenants`)
	page := sound(b.get("/events/invoice.paid").want(200).shows("pending", "the shop"))
	sound(b.get("/events/"+"invoice.paid/"+between(page.body, `href="/events/invoice.paid/`, `"`)).want(200).
		shows("1 subscribers", "&#34;n&#34;: 17", "the rest follows"))
}
