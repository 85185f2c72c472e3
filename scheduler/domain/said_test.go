package domain

import (
	"strings"
	"testing"
	"time"

	"punctual/scheduler/delivery/wire"
)

// A list of runs shows errors and no bodies, so the error says what the target said.
func TestAnErrorHasTheFirstLineOfTheAnswer(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		status     int
		body, want string
	}{
		{503, "\nupstream ledger is locked\nat ledger.go", ": upstream ledger is locked"},
		{503, `{"error": "upstream ledger is locked"} more`, ": upstream ledger is locked"},
		{422, `{"error": {"message": "no such\naccount", "code": 7}}`, ": no such"},
		{422, `{"code": 7}`, `: {"code": 7}`},
		{422, "{\n  \"code\": 7\n}", ""},
		{502, "<html><body>", ""},
		{503, "", ""},
		{500, "a\tb\x00\xff", ": a b ?"},
		{500, strings.Repeat("ü", 130), ": " + strings.Repeat("ü", 120) + "…"},
		{302, "moved", ""},
	} {
		a := judged(t, `{"retry":{"max_attempts":2}}`)
		r := wire.Result{Status: c.status, Reason: "http_5xx", Error: "it answered", Sent: true, Body: []byte(c.body)}
		if got := Judge(a, r, time.Unix(1e9, 0), time.Unix(1e9, 0)).Error; got != "it answered"+c.want {
			t.Errorf("%d %q: %q", c.status, c.body, got)
		}
	}
}
