package prove

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"

	"punctual/httpapi/client"
	"punctual/internal/pgtest"
	"punctual/internal/privatepg"
	"punctual/internal/process"
)

// besieged is a fleet that the nemesis keeps breaking.
type besieged struct {
	t       *testing.T
	server  *privatepg.Server
	dsn     string
	witness *Witness

	mu      sync.Mutex
	members []*member
	counts  map[string]int        // how often each fault was done
	dated   map[string]*uuid.UUID // by job and key, the run of the last write; nil: a later write had no answer
	inSQL   map[uuid.UUID]bool    // runs made in transactions of a caller, and whether these have committed
	frozen  []Span
	nobody  []Span            // when no replica or no database was up
	faults  map[string][]Span // when each other fault was going on
}

func newBesieged(t *testing.T, dsn string) *besieged {
	t.Helper()
	return &besieged{
		t: t, dsn: dsn, witness: newWitness(t), counts: map[string]int{}, faults: map[string][]Span{},
		dated: map[string]*uuid.UUID{}, inSQL: map[uuid.UUID]bool{},
	}
}

// member is a place in the fleet: it has one replica after the other, and a way to the database.
type member struct {
	replica *process.Replica // nil while the place is empty
	proxy   *pgtest.Proxy
	dsn     string
}

// live returns the living replicas.
func (b *besieged) live() (replicas []*process.Replica) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, m := range b.members {
		if m.replica != nil {
			replicas = append(replicas, m.replica)
		}
	}
	return replicas
}

func (b *besieged) note(what string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.counts[what]++
}

func (b *besieged) set(m *member, r *process.Replica) {
	b.mu.Lock()
	defer b.mu.Unlock()
	m.replica = r
}

// join adds a place to the fleet, and starts a replica in it.
func (b *besieged) join(m *member) {
	b.members = append(b.members, m)
	b.start(m)
}

// burden gives a mix and further jobs to the fleet, and returns the names of those that recur.
func (b *besieged) burden(m mix, more ...process.JobSpec) (recurring []string) {
	b.t.Helper()
	scriptMix(b.witness)
	work(b.t, b.witness, b.live)
	do[any](b.t, b.members[0].replica.API, "PATCH", "/v1/tenants/default", map[string]any{"changes_kept": "24h"})
	do[any](b.t, b.members[0].replica.API, "PUT", "/v1/limits/"+sharedLimit, map[string]any{"max_running": 1})
	jobs := slices.Concat(m.jobs(b.witness.URL), m.limited(b.witness.URL), m.approved(b.witness.URL), more)
	create(b.t, b.members[0].replica.API, jobs...)
	for _, j := range jobs {
		if name := j["name"].(string); !strings.HasPrefix(name, "shot-") {
			recurring = append(recurring, name)
		}
	}
	return recurring
}

// start starts a replica in a place. The database may be away; the replica waits for it, as long as it takes.
func (b *besieged) start(m *member) {
	for {
		r, err := process.Serve(b.t.Context(), binary(b.t), m.dsn, "--database-wait=60s")
		if err == nil {
			watch(b.t, r.Process)
			b.set(m, r)
			return
		}
		if b.t.Context().Err() != nil {
			b.t.Error(err)
			return
		}
		b.note("a start that failed")
	}
}

// act disturbs the processes.
func (b *besieged) act(rng *rand.Rand, jobs []string) {
	m := b.members[rng.IntN(len(b.members))]
	switch n := rng.IntN(12); {
	case n < 1:
		b.note("pauses that end while everybody is down")
		b.downOverPauses(rng, jobs)
	case n < 4:
		defer b.fault("kill -9")()
		m.replica.Kill()
		b.set(m, nil)
		pause(b.t, rng, 0, 5*time.Second)
		b.start(m)
	case n < 7:
		defer b.fault("restart with SIGTERM")()
		r := m.replica
		if err := r.Signal(syscall.SIGTERM); err != nil {
			b.t.Error(err)
		}
		code, err := r.Wait(b.t.Context())
		// A replica whose network is cut at that moment cannot write its outcomes, and says so. Others take over its runs.
		if cut := strings.Contains(r.Output(), "outcomes could not be written"); err != nil ||
			code != 0 && (code != 1 || !cut) {
			b.t.Errorf("a replica asked to stop ended with exit code %d, %v", code, err)
		}
		b.set(m, nil)
		b.start(m)
	case n < 8:
		defer b.fault("few descriptors")()
		before := limitDescriptors(b.t, m.replica.PID(), 40)
		pause(b.t, rng, time.Second, 8*time.Second)
		limitDescriptors(b.t, m.replica.PID(), before)
	default:
		defer b.fault("freeze with SIGSTOP")()
		began := time.Now()
		if err := m.replica.Signal(syscall.SIGSTOP); err != nil {
			b.t.Error(err)
		}
		pause(b.t, rng, time.Second, 20*time.Second)
		if err := m.replica.Signal(syscall.SIGCONT); err != nil {
			b.t.Error(err)
		}
		b.mu.Lock()
		b.frozen = append(b.frozen, Span{began, time.Now().Add(15 * time.Second)}) // until it has closed its requests
		b.mu.Unlock()
	}
}

// downOverPauses pauses some jobs for a short time, and keeps all replicas down when the pauses end and for a while
// after.
func (b *besieged) downOverPauses(rng *rand.Rand, jobs []string) {
	until := time.Now().Add(2 * time.Second).Truncate(time.Second)
	for _, name := range jobs[:len(jobs)/2] {
		// It may fail because the database is away.
		_, _ = b.members[0].replica.API.Do(b.t.Context(), "POST", "/v1/jobs/"+name+"/pause",
			map[string]any{"until": until.UTC().Format(time.RFC3339)}, nil)
	}
	began := time.Now()
	for _, m := range b.members {
		m.replica.Kill()
		b.set(m, nil)
	}
	pause(b.t, rng, time.Second, 8*time.Second)
	for i, m := range b.members {
		if b.start(m); i == 0 {
			b.away(began)
			if m.replica != nil {
				b.backfill(m.replica.API, "/v1/jobs/"+jobs[rng.IntN(len(jobs)/2)]) // perhaps before its pause is ended
			}
		}
	}
}

// attack disturbs the database, or the way to it.
func (b *besieged) attack(rng *rand.Rand) {
	m := b.members[rng.IntN(len(b.members))]
	switch n := rng.IntN(13); {
	case n < 2:
		b.note("crash of the database")
		defer b.away(time.Now())
		if err := b.server.Crash(); err != nil {
			b.t.Error(err)
		}
		pause(b.t, rng, 0, 8*time.Second)
		if err := b.server.Restart(b.t.Context()); err != nil {
			b.t.Error(err)
		}
	case n < 4:
		b.note("termination of all backends")
		defer b.away(time.Now())
		if err := b.execute(`
			SELECT pg_terminate_backend(pid)
			FROM pg_stat_activity
			WHERE datname = current_database() AND pid <> pg_backend_pid()`); err != nil {
			b.t.Error(err)
		}
	case n < 6:
		defer b.fault("commit whose answer is lost")()
		m.proxy.CutAfter("COMMIT")
		pause(b.t, rng, time.Second, 3*time.Second)
	case n < 8:
		defer b.fault("slow network")()
		m.proxy.Slow(300*time.Millisecond, 200*time.Millisecond)
		pause(b.t, rng, time.Second, 8*time.Second)
	case n < 10:
		defer b.fault("network cut in silence")()
		m.proxy.Cut()
		pause(b.t, rng, time.Second, 20*time.Second)
	case n < 11:
		defer b.fault("failover that leaves sockets open")()
		flipRoles(b.t, b.server, b.dsn)
		pause(b.t, rng, time.Second, 8*time.Second)
		unflip(b.t, b.server, b.dsn)
	default:
		defer b.fault("network cut by refusal")()
		m.proxy.Refuse()
		pause(b.t, rng, time.Second, 20*time.Second)
	}
	m.proxy.Heal()
}

// execute runs a statement over a connection of its own. The database may be away.
func (b *besieged) execute(sql string, args ...any) error {
	conn, err := pgtest.Connect(b.t.Context(), b.dsn+"&default_query_exec_mode=exec")
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(b.t.Context()) }()
	_, err = conn.Exec(b.t.Context(), sql, args...)
	return err
}

// meddle uses the API as people do, through any replica. Calls may fail because the replica or the database is away.
func (b *besieged) meddle(rng *rand.Rand, jobs []string) {
	replicas := b.live()
	if len(replicas) == 0 {
		return
	}
	api, path := replicas[rng.IntN(len(replicas))].API, "/v1/jobs/"+jobs[rng.IntN(len(jobs))]
	type list struct{ Data []struct{ ID, Run string } }
	call := func(method, path string, body, out any) bool {
		_, err := api.Do(b.t.Context(), method, path, body, out)
		return err == nil
	}
	var found list
	switch n := rng.IntN(18); {
	case n < 5:
		if call("POST", path+"/trigger", nil, nil) {
			b.note("trigger")
		}
	case n < 7:
		if call("GET", path+"/runs?limit=1", nil, &found) && len(found.Data) > 0 &&
			call("POST", "/v1/runs/"+found.Data[0].ID+"/cancel", nil, nil) {
			b.note("cancel")
		}
	case n < 8:
		if call("GET", "/v1/dead-letters?limit=1", nil, &found) && len(found.Data) > 0 {
			if id := cmp.Or(found.Data[0].Run, found.Data[0].ID); call("POST", "/v1/dead-letters/"+id+"/replay", nil, nil) {
				b.note("replay")
			}
		}
	case n < 9:
		if call("POST", path+"/pause", map[string]any{"until": time.Now().Add(2 * time.Second).UTC().Format(time.RFC3339)},
			nil) {
			b.note("pause")
		}
	case n < 10:
		b.backfill(api, path)
	case n < 12:
		b.date(rng, api, path)
	case n < 13:
		flow := "/v1/jobs/" + []string{"workflow-0", "approved-0"}[rng.IntN(2)]
		if call("GET", flow+"/runs?limit=1&status=dead", nil, &found) && len(found.Data) > 0 && call("POST",
			"/v1/runs/"+found.Data[0].ID+"/rerun", map[string]any{"from": []string{"join"}}, nil) {
			b.note("rerun from a step")
		}
	case n < 14:
		b.dateInSQL(rng, path[len("/v1/jobs/"):])
	case n < 17:
		what := []string{"approve", "approve", "reject"}[rng.IntN(3)]
		if call("GET", "/v1/jobs/approved-0/runs?limit=1", nil, &found) && len(found.Data) > 0 &&
			call("POST", "/v1/runs/"+found.Data[0].ID+"/"+what, nil, nil) {
			b.note(what)
		}
	default:
		if call("PATCH", path, map[string]any{"description": fmt.Sprint("edited at ", time.Now())}, nil) {
			b.note("edit")
		}
	}
}

// backfill fills a job's last slots. They are so few that it ends within patience, even if the job's runs are slow and
// must not overlap.
func (b *besieged) backfill(api *client.Client, path string) {
	now := time.Now().UTC()
	if _, err := api.Do(b.t.Context(), "POST", path+"/backfill", map[string]any{
		"from": now.Add(-15 * time.Second).Format(time.RFC3339), "to": now.Format(time.RFC3339),
	}, nil); err == nil {
		b.note("backfill")
	}
}

// date writes a dated run, or moves one that is pending under its key.
func (b *besieged) date(rng *rand.Rand, api *client.Client, path string) {
	key := fmt.Sprint("key/", rng.IntN(3))
	var out struct{ Run uuid.UUID }
	_, err := api.Do(b.t.Context(), "POST", path+"/trigger", map[string]any{
		"key": key, "delay": fmt.Sprintf("%dms", rng.IntN(4000)), "on_conflict": "replace",
	}, &out)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.counts["dated run"]++
	if b.dated[path+" "+key] = nil; err == nil {
		b.dated[path+" "+key] = &out.Run
	}
}

// dateInSQL makes a dated run in a transaction of its own, which it rolls back or commits.
func (b *besieged) dateInSQL(rng *rand.Rand, job string) {
	ctx, commits := b.t.Context(), rng.IntN(2) == 0
	conn, err := pgtest.Connect(ctx, b.dsn+"&default_query_exec_mode=exec")
	if err != nil {
		return
	}
	defer func() { _ = conn.Close(ctx) }()
	tx, err := conn.Begin(ctx)
	if err != nil {
		return
	}
	var run uuid.UUID
	if tx.QueryRow(ctx, `
		SELECT punctual.run_for(of_tenant => id, by_role => 'shop', job => $1, at => NULL, delay => $2::interval,
			body => NULL, key => NULL, on_conflict => 'keep', not_after => NULL, sequence => NULL, expires_after => NULL,
			headers => NULL)
		FROM punctual.tenants WHERE name = 'default'`, job, fmt.Sprint(rng.IntN(3000), "ms")).Scan(&run) != nil {
		return
	}
	if !commits {
		b.inSQL[run] = false
		_ = tx.Rollback(ctx)
	} else if tx.Commit(ctx) == nil {
		b.inSQL[run] = true
	}
	b.note(fmt.Sprint("dated run in SQL, committed: ", commits))
}

// checkDated checks that the last run that was written under each key was claimed. It may have ended in any way.
func (b *besieged) checkDated(f Facts) {
	for key, run := range b.dated {
		if run != nil && !slices.ContainsFunc(f.Runs, func(r Run) bool { return r.ID == *run }) {
			b.t.Errorf("%s: the dated run %s is lost", key, run)
		}
	}
	for run, committed := range b.inSQL {
		if slices.ContainsFunc(f.Runs, func(r Run) bool { return r.ID == run }) != committed {
			b.t.Errorf("the transaction of run %s has committed: %t; the run says otherwise", run, committed)
		}
	}
}

// report logs what happened.
func (b *besieged) report(f Facts) {
	for _, what := range slices.Sorted(maps.Keys(b.counts)) {
		b.t.Logf("%5d × %s", b.counts[what], what)
	}
	tally := map[string]int{}
	for _, r := range f.Runs {
		tally["runs "+r.Status]++
	}
	for _, a := range f.Attempts {
		tally["attempts "+a.Outcome]++
	}
	sent := map[uuid.UUID]int{}
	for _, q := range f.Requests {
		if sent[q.Run]++; sent[q.Run] == 2 {
			tally["runs sent more than once"]++
		}
	}
	for _, what := range slices.Sorted(maps.Keys(tally)) {
		b.t.Logf("%7d %s", tally[what], what)
	}
	logLateness(b.t, f)
	b.logBystander(b.t, f)
}
