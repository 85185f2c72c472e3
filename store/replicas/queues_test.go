package replicas_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"punctual/internal/pgtest"
	. "punctual/internal/storetest"
	"punctual/store"
)

// To start another replica helps where none serves the queue, and not where those that do cannot renew.
func TestTheAdviceForAnUnservedQueueFitsTheCause(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	c := AsReplica(OpenFixture(t, store.Options{
		DatabaseURL: pgtest.DSN(t), Log: slog.New(slog.NewTextHandler(&log, nil)),
	}))
	c.DueNow("due")
	said := func() string {
		log.Reset()
		Must(t, c.Replicas.WarnOfUnserved(t.Context()))
		return log.String()
	}
	if got := said(); got != "" {
		t.Errorf("while it is served: %s", got)
	}
	c.Exec(`UPDATE punctual.replicas SET renewed_at = now() - interval '1 minute'`)
	if got := said(); !strings.Contains(got, "cannot renew their heartbeats") || !strings.Contains(got, "[here]") ||
		strings.Contains(got, "--queues") {
		t.Errorf("while its replica is silent: %s", got)
	}
	c.Exec(`DELETE FROM punctual.replicas`)
	if got := said(); !strings.Contains(got, "--queues default=") {
		t.Errorf("without any replica: %s", got)
	}
}
