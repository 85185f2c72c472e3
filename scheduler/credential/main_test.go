package credential

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.uber.org/goleak"

	"punctual/scheduler/delivery"
	"punctual/scheduler/delivery/guard"
	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeSource is what the database knows.
type fakeSource struct {
	signing func() ([]SigningKey, error) // nil: the key of fakeSigningSecret
	secrets map[string]Secret            // by name or id
}

// fakeSigningSecret signs every request of these tests.
const fakeSigningSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwbdbMUDWDBH0="

var errAway = errors.New("the database is away")

func (f *fakeSource) SigningKeys(context.Context, int32) ([]SigningKey, error) {
	if f.signing != nil {
		return f.signing()
	}
	key, err := NewSigningKey(fakeSigningSecret, time.Time{})
	return []SigningKey{key}, err
}

func (f *fakeSource) NamedSecret(_ context.Context, _ int32, name string) (Secret, error) {
	if s, ok := f.secrets[name]; ok {
		return s, nil
	}
	return Secret{}, authErrorf("there is no secret %q", name)
}

func (f *fakeSource) JobSecret(_ context.Context, _ int32, _, id uuid.UUID) (Secret, error) {
	return f.NamedSecret(context.Background(), 0, id.String())
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func client(t testing.TB) *delivery.Client {
	t.Helper()
	c := delivery.New(delivery.Config{Guard: guard.New(guard.Loopback)})
	t.Cleanup(c.Close)
	return c
}

// compiled returns a job from the JSON of a definition.
func compiled(t testing.TB, text string) *domain.Job {
	t.Helper()
	var d jobspec.Definition
	must(t, json.Unmarshal([]byte(text), &d))
	job, err := domain.Compile(uuid.New(), 1, 1, d, 0)
	must(t, err)
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
