package dashboard

import (
	"strings"
	"testing"

	"punctual/scheduler/domain"
	"punctual/store/runs"
)

func TestARunAsACommandOfCurlGoesWhereTheRunWent(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ url, host, want string }{
		{"https://example.com/a", "", "curl -X POST 'https://example.com/a' -H 'X-A: b'"},
		{
			"https://10.0.0.1/a?b", "api.internal",
			"curl -X POST 'https://api.internal/a?b' --connect-to '::10.0.0.1:443' -H 'X-A: b'",
		},
		{
			"http://[fd00::1]:81/", "api.internal:8080",
			"curl -X POST 'http://api.internal:8080/' --connect-to '::[fd00::1]:81' -H 'X-A: b'",
		},
	} {
		request := &domain.SentRequest{Method: "POST", URL: c.url, Headers: map[string]string{"X-A": "b"}}
		if c.host != "" {
			request.Headers["Host"] = c.host
		}
		got := strings.ReplaceAll(runView{Run: runs.Run{Request: request}}.Curl(), nextLine, " ")
		if got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
}
