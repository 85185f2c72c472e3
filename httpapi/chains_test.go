package httpapi

import (
	"testing"

	"punctual/httpapi/problem"
)

func TestChainsOverTheAPI(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.do("POST", "/v1/jobs", `{"name":"report","target":{"url":"https://a.example"}}`).want(201)
	s.do("POST", "/v1/jobs", `{"name":"load","target":{"url":"https://a.example"},"then":[{"job":"reprot"}]}`).
		want(422).shows(`"location":"body.then[0].job"`).shows("there is no job")
	s.do("POST", "/v1/jobs", `{"name":"load","target":{"url":"https://a.example"},"then":[{"job":"report"}]}`).want(201).
		shows(`"then":[{"job":"report","when":"succeeded"}]`)
	s.do("PATCH", "/v1/jobs/report", `{"name":"send-report"}`,
		"Content-Type: application/merge-patch+json").want(200).shows(`"upstreams":[{"id":`)
	s.do("PUT", "/v1/jobs/send-report", `{"target":{"url":"https://a.example"},"then":[{"job":"load","when":"ended"}]}`).
		want(422).shows("send-report → load → send-report")
	s.do("GET", "/v1/jobs/load", "").want(200).shows(`"job":"send-report"`)
	s.do("DELETE", "/v1/jobs/send-report", "").code(problem.CodeState, "load")
	s.do("DELETE", "/v1/jobs/send-report?force=true", "").want(204)
	s.do("GET", "/v1/jobs/load", "").want(200).shows(`"broken_links":["`)
	s.do("GET", "/v1/runs?caused_by=019a3c5f-0000-8b21-8f6e-1d2c3b4a5968", "").want(200).shows(`"data":[]`)
}
