package server

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"punctual/internal/pgtest"
	"punctual/scheduler"
	"punctual/store"
)

func TestTheWatchdogIsCalledOnceWhileDueWorkIsClaimed(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	db, err := store.Open(t.Context(), store.Options{DatabaseURL: dsn, Master: pgtest.Master(t)})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	calls, answer := 0, http.StatusServiceUnavailable
	monitor := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if calls++; r.Method != http.MethodGet || r.URL.Path != "/ping/4711" || r.UserAgent() != "punctual/v1" {
			t.Errorf("%s %s by %s", r.Method, r.URL, r.UserAgent())
		}
		w.WriteHeader(answer)
	}))
	defer monitor.Close()
	looked := time.Time{}
	replica := func() error {
		chores := watchdog(Config{WatchdogURL: monitor.URL + "/ping/4711", Version: "v1"}, db, func() time.Time { return looked })
		_, _, err := chores[0].Batch(t.Context())
		return err
	}
	if err := replica(); err != nil || calls != 0 {
		t.Errorf("a replica that does not look for due work: %d calls, %v", calls, err)
	}
	looked = time.Now()
	if err := replica(); err == nil || !strings.Contains(err.Error(), "503") || calls != 1 {
		t.Errorf("a watchdog that is away: %d calls, %v", calls, err)
	}
	answer = http.StatusOK
	for range 2 { // two replicas
		if err := replica(); err != nil || calls != 2 {
			t.Errorf("%d calls, %v", calls, err)
		}
	}
	monitor.Close()
	conn, err := pgtest.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	if _, err := conn.Exec(t.Context(), `UPDATE punctual.deployment SET watchdog_called_at = '-infinity'`); err != nil {
		t.Fatal(err)
	}
	if err := replica(); err == nil || strings.Contains(err.Error(), "4711") {
		t.Errorf("a watchdog that cannot be reached: %v", err)
	}
	if watchdog(Config{}, db, scheduler.NewMetrics(prometheus.NewRegistry(), time.Second).LookedAt) != nil {
		t.Error("a chore without a watchdog")
	}
}
