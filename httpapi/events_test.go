package httpapi

import (
	"strings"
	"testing"

	"punctual/httpapi/problem"
	"punctual/store/events"
)

func TestAnEventIsEmittedTriedAndShown(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.create(`{"name":"german","target":{"url":"http://example.com/"},"schedule":{"event":"invoice.paid","filter":{"country":"DE"}}}`)
	s.create(jobOf("paused", `,"schedule":{"event":"invoice.paid"},"paused":true`))
	const path, body = "/v1/events/invoice.paid", `{"body":{"country":"DE"}}`
	tried := s.do("POST", path, `{"body":{"country":"FR"},"dry_run":true}`).want(200).fields()
	if tried["made"] != 0.0 || tried["skipped"] != 1.0 || tried["unmatched"] != 1.0 {
		t.Errorf("a dry run answers %v", tried)
	}
	if names := get[List[events.EventName]](s, "/v1/events").Data; len(names) != 1 || names[0].Subscribers != 2 || names[0].Events != 0 {
		t.Errorf("before the event: %+v", names)
	}
	emitted := s.do("POST", path, body, "Idempotency-Key: k").want(202).fields()
	if again := s.do("POST", path, body, "Idempotency-Key: k").want(202).fields(); again["id"] != emitted["id"] {
		t.Errorf("the same key emits %v and %v", emitted["id"], again["id"])
	}
	if emitted["subscribed"] != 2.0 {
		t.Errorf("emitted: %v", emitted)
	}
	if list := get[List[events.Event]](s, path).Data; len(list) != 1 || list[0].ID.String() != emitted["id"] {
		t.Errorf("listed: %+v", list)
	}
	shown := get[events.EventDetails](s, path+"/"+emitted["id"].(string))
	if string(shown.Body) != `{"country":"DE"}` || !shown.Pending || shown.Subscribed != 2 {
		t.Errorf("shown: %+v", shown)
	}
	s.do("POST", "/v1/events/invoice%20paid", body).blames("path.name")
	s.do("POST", path, `{"body":"`+strings.Repeat("x", 256<<10)+`"}`).blames("body.body")
	s.do("GET", "/v1/events/never", "").code(problem.CodeNotFound)
	s.do("GET", "/v1/events/other/"+emitted["id"].(string), "").code(problem.CodeNotFound)
}
