package scheduler

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"

	"github.com/google/uuid"
	"go.uber.org/goleak"

	"punctual/scheduler/delivery"
	"punctual/scheduler/delivery/guard"
	"punctual/scheduler/domain"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// virtually runs a subtest in virtual time.
func virtually(t *testing.T, name string, test func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
}

// compiled returns a job from the JSON of a definition, with a default name and target. The definition is validated as
// the API does it.
func compiled(t testing.TB, text string) *domain.Job {
	t.Helper()
	d := domain.Definition{Name: "job", Target: domain.Target{URL: "http://127.0.0.1:9/hook"}}
	if err := json.Unmarshal([]byte(text), &d); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	if problems := d.Validate(); problems != nil {
		t.Fatalf("%s: %v", text, problems)
	}
	job, err := domain.Compile(uuid.MustParse("0199c9a2-7b3c-7d10-9c3e-2f6f3f1d5a01"), 1, 1, d, 0)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return job
}

// seen is a request as its target received it.
type seen struct {
	Method, Path, Body string
	Header             http.Header
}

// target starts a server that answers with the given status. It returns the URL and the requests that arrive.
func target(t *testing.T, status int) (url string, requests <-chan seen) {
	t.Helper()
	got := make(chan seen, 100)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- seen{r.Method, r.URL.RequestURI(), string(body), r.Header}
		w.WriteHeader(status)
	}))
	t.Cleanup(server.Close)
	return server.URL, got
}

func client(t testing.TB) *delivery.Client {
	t.Helper()
	c := delivery.New(delivery.Config{Guard: guard.New(guard.Loopback)})
	t.Cleanup(c.Close)
	return c
}
