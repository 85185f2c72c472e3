package server

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestTheEchoTargetAnswersAsItIsAsked(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		query  string
		gone   bool // whether the caller has given up
		status int
		after  time.Duration
	}{
		{"", false, http.StatusOK, 0},
		{"?status=503&after=20s", false, http.StatusServiceUnavailable, 20 * time.Second},
		{"?after=1h", false, http.StatusOK, echoPatience},
		{"?after=20s", true, http.StatusOK, 0},
		{"?status=1&after=soon", false, http.StatusOK, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if c.gone {
				cancel()
			}
			answer, began := httptest.NewRecorder(), time.Now()
			echo(answer, httptest.NewRequestWithContext(ctx, "POST", "/echo"+c.query, strings.NewReader("hello")))
			if took := time.Since(began); answer.Code != c.status || took != c.after ||
				!strings.Contains(answer.Body.String(), `"body":"hello"`) {
				t.Errorf("%s: %d after %s: %s", c.query, answer.Code, took, answer.Body)
			}
		})
	}
}
