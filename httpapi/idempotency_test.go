package httpapi

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"punctual/httpapi/problem"
	"punctual/store/runs"
)

func TestIdempotencyKey(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.create(minimal("t"))
	for _, c := range []struct{ path, body, other string }{
		{"/v1/jobs", minimal("a"), minimal("b")},
		{"/v1/jobs/batch", `{"jobs":[` + minimal("c") + `]}`, `{"jobs":[` + minimal("d") + `]}`},
		{"/v1/jobs/t/trigger", "", `{"body":1}`},
	} {
		t.Run(c.path, func(t *testing.T) {
			s, key := s.in(t), "Idempotency-Key: key of "+c.path
			s.do("POST", c.path, c.body, key).code(problem.CodeInvalid) // a space is not a visible character
			key = strings.ReplaceAll(key, "key of ", "key-of-")
			first := s.do("POST", c.path, c.body, key)
			if first.status/100 != 2 || first.header.Get("Idempotent-Replayed") != "" {
				t.Fatalf("%d %v %s", first.status, first.header, first.body)
			}
			again := s.do("POST", c.path, c.body, key).want(first.status)
			if again.header.Get("Idempotent-Replayed") != "true" {
				t.Error("not marked as replayed")
			}
			for _, h := range []string{"Location", "ETag", "Content-Type"} {
				if first.header.Get(h) != again.header.Get(h) {
					t.Errorf("%s: %q, then %q", h, first.header.Get(h), again.header.Get(h))
				}
			}
			if diff := cmp.Diff(string(first.body), string(again.body)); diff != "" {
				t.Error(diff)
			}
			s.do("POST", c.path, c.other, key).code(problem.CodeKeyReused)
			s.do("POST", c.path, c.other, "Idempotency-Key: "+strings.Repeat("x", 256)).code(problem.CodeInvalid)
		})
	}
	s.do("POST", "/v1/jobs", minimal("a"), "Idempotency-Key: key-of-/v1/jobs/t/trigger").code(problem.CodeKeyReused)
	s.do("POST", "/v1/jobs", minimal("a"), "Idempotency-Key: failed").code(problem.CodeNameTaken)
	s.do("DELETE", "/v1/jobs/a", "").want(204)
	s.do("POST", "/v1/jobs", minimal("a"), "Idempotency-Key: failed").want(201) // a failure stores no answer
}

func TestConcurrentRequestsOfOneKeyWriteOnce(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.create(minimal("n"))
	ids := make([]string, 16)
	var group sync.WaitGroup
	for i := range ids {
		group.Go(func() {
			r := s.do("POST", "/v1/jobs/n/trigger", `{"body":1}`, "Idempotency-Key: k")
			ids[i] = fmt.Sprint(r.status, into[runs.Run](r).ID)
		})
	}
	group.Wait()
	slices.Sort(ids)
	if ids = slices.Compact(ids); len(ids) != 1 || !strings.HasPrefix(ids[0], "202") {
		t.Errorf("%v", ids)
	}
	if data := s.items("/v1/runs"); len(data) != 1 {
		t.Errorf("%d runs", len(data))
	}
}
