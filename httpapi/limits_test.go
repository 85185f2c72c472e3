package httpapi

import (
	"testing"

	"punctual/httpapi/problem"
	"punctual/store/limits"
)

func TestLimitsAreWrittenNamedAndDeleted(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.do("PUT", "/v1/limits/warehouse", `{"max_running":1}`).want(201)
	s.do("PUT", "/v1/limits/warehouse", `{"max_running":2,"max_starts_per_second":5}`).want(200)
	if l := get[limits.Limit](s, "/v1/limits/warehouse"); *l.MaxRunning != 2 || *l.MaxStartsPerSecond != 5 || l.Jobs != 0 {
		t.Errorf("shown: %+v", l)
	}
	if all := get[LimitList](s, "/v1/limits"); len(all.Data) != 1 || all.Data[0].Name != "warehouse" {
		t.Errorf("listed: %+v", all)
	}
	for body, at := range map[string]string{
		`{}`: "body", `{"max_running":0}`: "body.max_running", `{"max_starts_per_second":100001}`: "body.max_starts_per_second",
	} {
		s.do("PUT", "/v1/limits/wrong", body).blames(at)
	}
	s.do("PUT", "/v1/limits/a%20b", `{"max_running":1}`).blames("path.limit")
	const job = `{"target":{"url":"https://example.com/"},"limits":["warehouse"]}`
	s.do("PUT", "/v1/jobs/imports", `{"target":{"url":"https://example.com/"},"limits":["warehous"]}`).blames("body.limits[0]")
	s.do("PUT", "/v1/jobs/imports", job).want(201)
	s.do("DELETE", "/v1/limits/warehouse", "").code(problem.CodeState, "imports")
	s.do("DELETE", "/v1/jobs/imports", "").want(204)
	s.do("DELETE", "/v1/limits/warehouse", "").want(204)
	s.do("GET", "/v1/limits/warehouse", "").code(problem.CodeNotFound, "no limit with that name")
}
