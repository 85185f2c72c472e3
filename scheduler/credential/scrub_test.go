package credential

import (
	"strings"
	"testing"

	"punctual/scheduler/delivery"
	"punctual/scheduler/delivery/wire"
)

func TestSecretsAreTakenOutOfHeadersAndResults(t *testing.T) {
	t.Parallel()
	const secret = `s3cret/"x`
	location := strings.Repeat("l", delivery.MaxKeptHeader-6) + secret[:6]
	r := wire.Result{
		JSON:   []byte(`{"result":{"a":"s3cret/\"x","b":"s3cret\/\"x"}}`),
		Header: map[string]string{"server": "x " + secret, "location": location, "via": secret[:6]},
	}
	scrub(&r, []string{secret})
	if got := string(r.JSON); got != `{"result":{"a":"***","b":"***"}}` {
		t.Errorf("JSON %s", got)
	}
	if r.Header["server"] != "x ***" || strings.Contains(r.Header["location"], "s3cret") || r.Header["via"] != secret[:6] {
		t.Errorf("headers %v", r.Header)
	}
}

func TestWhatWasSentIsScrubbed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		body, want string
		truncated  bool
	}{
		{"you sent s3cr3t\"x!", "you sent ***!", false},
		{`{"echo":"s3cr3t\"x"}`, `{"echo":"***"}`, false},
		{"?q=s3cr3t%22x&", "?q=***&", false},
		{"cut off: s3cr3", "cut off: ***", true},
		{"cut off: s3", "cut off: s3", true},
		{"whole: s3cr3", "whole: s3cr3", false},
		{"", "", true},
	} {
		r := wire.Result{Body: []byte(c.body), Truncated: c.truncated, Error: `what s3cr3t"x`}
		scrub(&r, []string{`s3cr3t"x`, ""})
		if string(r.Body) != c.want || r.Error != "what ***" {
			t.Errorf("%q: %q, %q", c.body, r.Body, r.Error)
		}
	}
}

func TestSecretsWithinOthersAreScrubbedWhole(t *testing.T) {
	t.Parallel()
	for _, secrets := range [][]string{{"key", "key/of+all"}, {"key/of+all", "key"}} {
		for body, want := range map[string]string{
			"key key/of+all key": "*** *** ***",
			`"key\/of+all"`:      `"***"`, // PHP escapes slashes in JSON
			"key%2Fof%2Ball":     "***",
			"cut off: key/of":    "cut off: ***",
		} {
			r := wire.Result{Body: []byte(body), Error: body, Truncated: true}
			scrub(&r, secrets)
			if string(r.Body) != want {
				t.Errorf("%q, without %q: %q", body, secrets, r.Body)
			}
		}
	}
}
