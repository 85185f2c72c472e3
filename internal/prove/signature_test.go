//prove:other

package prove

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"testing"

	"punctual/internal/pgtest"
	"punctual/internal/process"
)

// signed is a callback as its target got it, in the form that testdata/standardwebhooks/verify.js reads.
type signed struct {
	Secret  string            `json:"secret"`
	Headers map[string]string `json:"headers"`
	Body    []byte            `json:"body"`
}

// listener is a target that keeps its requests, and fails the first of two requests to /retry.
func listener(t *testing.T) (url string, got chan signed) {
	t.Helper()
	got = make(chan signed, 100)
	retried := false
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		headers := map[string]string{}
		for name := range r.Header {
			headers[strings.ToLower(name)] = r.Header.Get(name)
		}
		got <- signed{Headers: headers, Body: body}
		if r.URL.Path == "/retry" && !retried {
			retried = true
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	t.Cleanup(server.Close)
	return server.URL, got
}

// judged asks the npm package standardwebhooks to verify each callback.
func judged(t *testing.T, all ...signed) []string {
	t.Helper()
	node := pgtest.Program(t, "apt-get install nodejs", "node")
	var lines strings.Builder
	for _, s := range all {
		line, err := json.Marshal(s)
		must(t, err)
		lines.Write(append(line, '\n'))
	}
	cmd := exec.CommandContext(t.Context(), node, "../../testdata/standardwebhooks/verify.js")
	cmd.Stdin = strings.NewReader(lines.String())
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v, where `make testdata/standardwebhooks/node_modules/.package-lock.json` installs what is needed: %s",
			err, out)
	}
	return strings.Split(strings.TrimSpace(string(out)), "\n")
}

// Another library verifies the signatures of callbacks.
//
// Also while two secrets are valid.
func TestAnotherLibraryVerifiesTheSignatures(t *testing.T) {
	t.Parallel()
	r := serve(t, pgtest.DSN(t))
	url, got := listener(t)
	type secret struct{ ID, Secret string }
	old := do[secret](t, r.API, "POST", "/v1/signing-secrets", nil)
	next := do[secret](t, r.API, "POST", "/v1/signing-secrets", nil)
	var all []signed
	for name, body := range map[string]any{
		"json": map[string]any{"n": 1, "text": "grüße <&>"}, "text": "plain, not JSON", "none": nil, "retry": "again",
	} {
		create(t, r.API, process.JobSpec{
			"name":   name,
			"target": map[string]any{"url": url + "/" + name, "body": body},
			"retry":  map[string]any{"initial_backoff": "1ms"},
		})
		trigger(t, r.API, name)
		all = append(all, within(t, "a callback", got))
		if name == "retry" {
			again := within(t, "a second attempt", got)
			if first := all[len(all)-1]; again.Headers["webhook-id"] != first.Headers["webhook-id"] {
				t.Errorf("the retry has webhook-id %s, the first attempt %s", again.Headers["webhook-id"],
					first.Headers["webhook-id"])
			}
			all = append(all, again)
		}
	}
	var asked []signed
	var want []string
	for _, s := range all {
		if n := len(strings.Fields(s.Headers["webhook-signature"])); n != 2 {
			t.Errorf("%d signatures: %s", n, s.Headers["webhook-signature"])
		}
		other := s
		other.Body = append([]byte("x"), s.Body...)
		for _, change := range []struct {
			s      signed
			secret string
			want   string
		}{
			{s, old.Secret, "ok"},
			{s, next.Secret, "ok"},
			{s, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "No matching signature found"},
			{other, next.Secret, "No matching signature found"},
		} {
			change.s.Secret = change.secret
			asked, want = append(asked, change.s), append(want, change.want)
		}
	}
	for i, verdict := range judged(t, asked...) {
		if verdict != want[i] {
			t.Errorf("body %q, %v: %s, want %s", asked[i].Body, asked[i].Headers, verdict, want[i])
		}
	}
	// Once the old secret is deleted it signs no more.
	_, err := r.API.Do(t.Context(), "DELETE", "/v1/signing-secrets/"+old.ID, nil, nil)
	must(t, err)
	trigger(t, r.API, "json")
	last := within(t, "a callback", got)
	byOld, byNext := last, last
	byOld.Secret, byNext.Secret = old.Secret, next.Secret
	if verdicts := judged(t, byOld, byNext); verdicts[0] == "ok" || verdicts[1] != "ok" {
		t.Errorf("after the old one was deleted: %v", verdicts)
	}
	stop(t, r)
}
