package scheduler

import (
	"strings"
	"testing"

	"punctual/scheduler/delivery"
)

func TestSecretsAreTakenOutOfHeadersAndResults(t *testing.T) {
	t.Parallel()
	const secret = `s3cret/"x`
	location := strings.Repeat("l", delivery.MaxKeptHeader-6) + secret[:6]
	r := delivery.Result{
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
