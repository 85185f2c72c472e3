//prove:database

package prove

import (
	"testing"
	"time"

	"punctual/internal/pgtest"
	"punctual/internal/process"
)

const connectionsOf = `
	SELECT count(*)
	FROM pg_stat_activity
	WHERE datname = current_database() AND application_name = $1`

// Round trips to Postgres take 200 to 500 ms. Everything is sent once, within `--max-conns`.
//
// For 10 s, over hardly any new connections.
func TestASlowNetworkToTheDatabaseCostsTimeOnly(t *testing.T) {
	t.Parallel()
	dsn, w := pgtest.DSN(t), newWitness(t)
	proxy, through := pgtest.NewProxy(t, pgtest.TCP(t, pgtest.Server(t), dsn))
	const most = 10
	fleet := []*process.Replica{
		serve(t, named(through, "first"), "--max-conns=10"), serve(t, named(through, "second"), "--max-conns=10"),
	}
	first, second := sample(t, dsn, connectionsOf, "first"), sample(t, dsn, connectionsOf, "second")
	s := besiege(t, fleet[0].API, w, 10)
	before := proxy.Accepted()
	proxy.Slow(350*time.Millisecond, 150*time.Millisecond)
	s.outlast(t)
	during := proxy.Accepted() - before
	proxy.Heal()
	logLateness(t, s.unharmed(t, dsn))
	if a, b := first(), second(); a > most || b > most {
		t.Errorf("the replicas had %d and %d connections at once, want at most %d each", a, b, most)
	} else {
		t.Logf("at most %d and %d connections at once; %d made while the network was slow", a, b, during)
	}
	if during > 2*most {
		t.Errorf("%d connections were made while the network was slow, want at most %d", during, 2*most)
	}
	stopCalm(t, 50, fleet...)
}

// A replica is cut off from Postgres. It ends requests that must not overlap before another takes over.
//
// By silence or by refusal, for longer than its TTL. The other takes over within 15 s, and after the cut the replica
// joins again. It makes fewer than 20 connection attempts a second.
func TestAReplicaThatIsCutOffStopsItselfAndIsTakenOver(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]func(*pgtest.Proxy){
		"silence": (*pgtest.Proxy).Cut,
		"refusal": (*pgtest.Proxy).Refuse,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cutOff(t, fault)
		})
	}
}

func cutOff(t *testing.T, fault func(*pgtest.Proxy)) {
	dsn, w := pgtest.DSN(t), newWitness(t)
	proxy, through := pgtest.NewProxy(t, pgtest.TCP(t, pgtest.Server(t), dsn))
	first := serve(t, through)
	const jobs = 12
	hanging(t, first, w, jobs)
	second := serve(t, dsn)
	s := besiege(t, second.API, w, 14)
	fault(proxy)
	cut, before := time.Now(), proxy.Accepted()
	await(t, "all runs of the replica that was cut off to be taken over", func() bool {
		return len(w.At("/stuck")) == 2*jobs
	})
	takenOver(t, w, cut)
	gone := count(w.At("/stuck")[:jobs], func(q Request) bool { return !q.Ended.IsZero() })
	if gone != jobs/2 { // half of the jobs must not overlap: a replica cuts off their requests
		t.Errorf("the replica cut off %d of its requests, want %d", gone, jobs/2)
	}
	attempts := proxy.Accepted() - before
	if perSecond := float64(attempts) / time.Since(cut).Seconds(); perSecond > 20 {
		t.Errorf("it made %d connections, %.1f a second", attempts, perSecond)
	} else {
		t.Logf("it tried %d connections, %.1f a second", attempts, perSecond)
	}
	sent := len(w.Requests())
	proxy.Heal()
	conn := connect(t, dsn)
	await(t, "it to join again", func() bool {
		return query[int](t, conn, `SELECT count(*) FROM punctual.replicas WHERE renewed_at > now() - interval '5 s'`) == 2
	})
	w.Release("/stuck")
	s.outlast(t)
	f := atRest(t, dsn, w)
	verify(t, f, Conditions{})
	t.Logf("%d requests before it was healed, %d in all", sent, len(f.Requests))
	create(t, first.API, job("afterwards", w.URL+"/ok", nil))
	stop(t, second)
	trigger(t, first.API, "afterwards")
	await(t, "a run of the replica that was cut off", func() bool { return len(w.At("/ok")) == 1 })
	stop(t, first)
}

// Connections break right after COMMIT. Claims in doubt are given back, outcomes written again, and everything is sent
// once.
//
// Also after outcomes, up to 48 times in 10 s. The claims are given back unsent.
func TestCommitsWhoseAnswerIsLostAreResolved(t *testing.T) {
	t.Parallel()
	dsn, w := pgtest.DSN(t), newWitness(t)
	proxy, through := pgtest.NewProxy(t, pgtest.TCP(t, pgtest.Server(t), dsn))
	through += "&default_query_exec_mode=describe_exec" // so that each use of a statement carries its text
	fleet := []*process.Replica{serve(t, through), serve(t, through)}
	s := besiege(t, fleet[0].API, w, 10)
	const claim, finish, attempt = "COMMIT", "UPDATE punctual.runs r", "INSERT INTO punctual.attempts"
	for range 12 {
		proxy.CutAfter(claim, finish, claim, attempt)
	}
	s.outlast(t)
	cuts := proxy.Cuts()
	proxy.Heal()
	// A claim whose commit is in doubt is never sent. An outcome is written again until its commit is certain.
	s.unharmed(t, dsn)
	t.Logf("%d answers were lost", cuts)
	if cuts < 8 { // two of each kind; how many more depends on the machine
		t.Errorf("only %d answers were lost", cuts)
	}
	stopCalm(t, 400, fleet...)
}
