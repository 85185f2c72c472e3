package dashboard

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"punctual/httpapi/client"
)

// The page of jobs comes without the runs that cannot be read, and says so. (It was 503 after half a minute.)
func TestThePageOfJobsComesWithoutRunsThatCannotBeRead(t *testing.T) {
	t.Parallel()
	s := serve(t, true)
	b := s.browser()
	b.create("n")
	const unread = "The newest runs of these jobs could not be read in time"
	b.get("/jobs").want(200).hides(unread, "not read")
	tx, err := s.store.Pool().Begin(t.Context())
	must(t, err)
	_, err = tx.Exec(t.Context(), `LOCK TABLE punctual.runs IN ACCESS EXCLUSIVE MODE`)
	must(t, err)
	began := time.Now()
	b.get("/jobs").want(200).shows(unread, ">not read<", `href="/jobs/n"`)
	if took := time.Since(began); took >= 30*time.Second { // when the API gives a request up
		t.Errorf("the page took %s", took)
	}
	must(t, tx.Rollback(t.Context()))
	b.get("/jobs").want(200).hides(unread, "not read")
}

// A part without which a page is of use is given up soon, but not taken for unread because the visitor has left.
func TestAnOptionalPartIsGivenUpSoon(t *testing.T) {
	t.Parallel()
	slow := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	at := func(ctx context.Context) *visit {
		v := &visit{
			Pages: &Pages{api: slow}, w: httptest.NewRecorder(), r: httptest.NewRequestWithContext(ctx, "GET", "/jobs/n", nil),
		}
		v.api = v.calls(v.session)
		return v
	}
	var view jobView
	_, err := optional(at(t.Context()), client.JobStats, nil, "n")
	if !errors.Is(err, errUnread) || view.without("The figures", err) != nil || view.Unread != "The figures" {
		t.Errorf("the page has %q, and the error %v", view.Unread, err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := optional(at(gone), client.JobStats, nil, "n"); err == nil || view.without("", err) == nil {
		t.Errorf("the visitor has left, and the error is %v", err)
	}
}
