package prove

import (
	"context"
	"sync"
	"time"

	"punctual/internal/pgtest"
	"punctual/internal/privatepg"
	"punctual/internal/process"
)

// scene is a deployment with faults that do not disturb each other.
type scene struct {
	name   string
	starts func(*site) // its healthy replicas
	faults []alarming
	also   []string // rules that may fire as well
}

// alarming is a fault, and the rules that it fires.
type alarming struct {
	fires []string
	fault string
	begin func(*site) (end func())
}

var scenes = []scene{
	{
		name: "callers and targets",
		starts: func(s *site) {
			s.dsn = pgtest.DSN(s)
			s.join("--queues=default=50,narrow=1", "--on-time=3s")
			s.create(job("fine", s.w.URL+"/fine", process.JobSpec{"schedule": every("1s")}))
		},
		faults: []alarming{
			{
				[]string{"PunctualDeadLettersGrow", "PunctualRunsDead"},
				"a target answers 410 to all runs of twelve jobs", allGone,
			},
			{
				[]string{"PunctualRunsDropped"},
				"thirty events come during a run of a job under `forbid`", notTaken,
			},
			{[]string{"PunctualHostHeldBack"}, "a target refuses connections", unreachable},
			{[]string{"PunctualNoticesUndelivered"}, "a recipient of notices answers 400", refusing},
			{
				[]string{
					"PunctualConcurrencyUsedUp", "PunctualLate", "PunctualObjectiveBurnsFast", "PunctualObjectiveBurnsSlowly",
				},
				"forty runs of two seconds are due in a queue with a concurrency of one", crowd,
			},
			{[]string{"PunctualKeyExpires"}, "an API key is created for ten days", keyFor("240h")},
			{[]string{"PunctualSnapshotOld"}, "a transaction in psql has a snapshot, and stays open", forgotten},
		},
		also: []string{"PunctualWorkWaits"}, // the work of the narrow queue
	},
	{
		name: "replicas",
		starts: func(s *site) {
			s.dsn = pgtest.DSN(s)
			s.join("--on-time=3s")
			s.join("--queues=victim=5")
			s.create(job("fine", s.w.URL+"/fine", process.JobSpec{"schedule": every("1s")}))
		},
		faults: []alarming{
			{
				[]string{"PunctualDaysNotArchived"},
				"the archive command fails, and a day has waited for seven hours", unarchived,
			},
			{
				[]string{"PunctualReplicaDown", "PunctualReplicaLost", "PunctualQueueWithoutReplica"},
				"kill -9 of a queue's only replica, with a request in flight", killed,
			},
			{[]string{"PunctualSetAside"}, "a foreign trigger in the database refuses each run of one job", refusedRuns},
			{
				[]string{"PunctualWorkWaits", "PunctualManyOverdue"},
				"a transaction in psql locks 120 due jobs, and stays open", lockedOut,
			},
			{[]string{"PunctualReplicaLacks"}, "the egress proxy of a replica refuses connections", noProxy},
			{[]string{"PunctualZoneDataOld"}, "a replica has time zone data of 1980", oldZones},
			{
				[]string{"PunctualPartitionsMissing"},
				"partitions are dropped, and an open transaction prevents new ones", partitionless,
			},
			{
				[]string{"PunctualGatedJobRunsTwice"},
				"a job's gate is emptied in psql during a run, and another begins", ungated,
			},
			{[]string{"PunctualStillFrozen"}, "a tenant is frozen", frozenTenant},
		},
		// A run that is given back unsent counts each time.
		also: []string{"PunctualLate", "PunctualObjectiveBurnsFast", "PunctualObjectiveBurnsSlowly"},
	},
	{
		name: "no database",
		starts: func(s *site) {
			s.proxy, s.dsn = pgtest.NewProxy(s, pgtest.TCP(s, pgtest.Server(s), pgtest.DSN(s)))
			for range 3 {
				s.watch(measuredApart(s))
			}
		},
		faults: []alarming{{
			[]string{"PunctualNoReplicaLooks", "PunctualReplicaIdles", "PunctualMaintenanceFails"},
			"the database refuses connections, for half a minute", noDatabase,
		}},
	},
	{
		name: "nobody",
		starts: func(s *site) {
			s.dsn = pgtest.DSN(s)
			s.join()
		},
		faults: []alarming{{[]string{"PunctualNoReplicaAnswers"}, "kill -9 of the only replica", allKilled}},
		also:   []string{"PunctualReplicaDown"},
	},
	{
		name: "a slow database",
		starts: func(s *site) {
			s.proxy, s.dsn = pgtest.NewProxy(s, pgtest.TCP(s, pgtest.Server(s), pgtest.DSN(s)))
			s.watch(measuredApart(s, "--max-conns=10", "--on-time=3s"))
			s.create(job("fine", s.w.URL+"/fine", process.JobSpec{"schedule": every("1s")}))
		},
		faults: []alarming{
			{[]string{"PunctualClaimsSlow"}, "each round trip to the database takes 150 ms", slowed},
			{[]string{"PunctualConnectionsUsedUp"}, "forty callers read all the time, and the database is slow", crowded},
		},
		also: []string{
			"PunctualLate", "PunctualObjectiveBurnsFast", "PunctualObjectiveBurnsSlowly", "PunctualWorkWaits",
			"PunctualReplicaIdles", "PunctualNoReplicaLooks", "PunctualMaintenanceFails", "PunctualClockDiffers",
			"PunctualReplicaDown", "PunctualNoReplicaAnswers",
		},
	},
	{
		name: "the clock",
		starts: func(s *site) {
			s.clock = pgtest.NewClock(s)
			s.dsn = pgtest.Database(s, pgtest.NewServer(s, privatepg.Config{Env: s.clock.Env}))
			s.join()
		},
		faults: []alarming{
			{[]string{"PunctualClockDiffers"}, "the database's clock is set an hour and a half ahead", ahead},
			{
				[]string{"PunctualJobsOverlapping"},
				"a run outlasts the next three slots, half an hour apart by the database's clock", overlapping,
			},
		},
		also: []string{"PunctualQueueWithoutReplica"}, // until the next heartbeat: for two seconds, and not for a minute
	},
	{
		name: "a crash",
		starts: func(s *site) {
			s.server = pgtest.NewServer(s, privatepg.Config{})
			s.dsn = pgtest.TCP(s, s.server, pgtest.Database(s, s.server))
			s.claim = claimTwo(s.T, s.dsn, s.dsn)
			s.watch(s.claim.replica)
		},
		faults: []alarming{{
			[]string{"PunctualOutcomeLost"},
			"a crash with `synchronous_commit` off loses the outcome of one run of two", losing,
		}},
		also: []string{
			"PunctualReplicaDown", "PunctualNoReplicaLooks", "PunctualNoReplicaAnswers", // while the database is away, for longer than the second of here
			"PunctualLate", "PunctualObjectiveBurnsFast", "PunctualObjectiveBurnsSlowly",
		},
	},
}

// measuredApart starts a replica with an address for its metrics, where no caller is looked up in the database.
func measuredApart(s *site, flags ...string) *process.Replica {
	s.Helper()
	r := serve(s, s.dsn, append(flags, "--metrics-listen=127.0.0.1:0")...)
	await(s, "the address of the metrics", func() bool { return metricsAlone.MatchString(r.Output()) })
	return r
}

func allGone(s *site) (end func()) {
	s.w.Script("/gone", Answer{Status: 410})
	gone := many(12, "gone", s.w.URL+"/gone", process.JobSpec{"schedule": every("2s")})
	s.create(gone...)
	return func() {
		for _, j := range gone {
			s.call("DELETE", "/v1/jobs/"+j["name"].(string), nil)
		}
		s.call("POST", "/v1/dead-letters/resolve", map[string]any{"filter": map[string]any{}})
	}
}

func notTaken(s *site) (end func()) {
	s.w.Script("/busy", Answer{Hang: true})
	s.create(job("busy", s.w.URL+"/busy", process.JobSpec{
		"schedule": map[string]any{"event": "paid"}, "concurrency_policy": "forbid", "timeout": "5m",
	}))
	emit := func() { s.call("POST", "/v1/events/paid", map[string]any{"body": map[string]any{}}) }
	emit()
	await(s, "the run", func() bool { return len(s.w.At("/busy")) == 1 })
	for range 30 {
		emit()
	}
	return func() { s.w.Release("/busy") }
}

func allKilled(s *site) (end func()) {
	victim := s.fleet[0]
	victim.Kill()
	return func() {
		s.leave(victim)
		s.join()
	}
}

func forgotten(s *site) (end func()) {
	conn := connect(s, s.dsn)
	execute(s, conn, `BEGIN ISOLATION LEVEL REPEATABLE READ`)
	query[int](s, conn, `SELECT count(*)::integer FROM punctual.jobs`)
	return func() { execute(s, conn, `ROLLBACK`) }
}

func slowed(s *site) (end func()) {
	s.proxy.Slow(150*time.Millisecond, 0)
	return s.proxy.Heal
}

func crowded(s *site) (end func()) {
	ctx, stop := context.WithCancel(s.Context())
	var callers sync.WaitGroup
	for range 40 {
		callers.Go(func() {
			for ctx.Err() == nil {
				_, _ = s.fleet[0].API.Do(ctx, "GET", "/v1/jobs/fine", nil, nil)
			}
		})
	}
	return func() {
		stop()
		callers.Wait()
	}
}

func ungated(s *site) (end func()) {
	s.w.Script("/alone", Answer{Hang: true})
	s.create(job("alone", s.w.URL+"/alone", process.JobSpec{"concurrency_policy": "forbid", "timeout": "5m"}))
	await(s, "the run", func() bool { return len(s.w.At("/alone")) == 1 })
	execute(s, connect(s, s.dsn), `UPDATE punctual.exclusive SET active_run = NULL
		WHERE job_id = (SELECT id FROM punctual.jobs WHERE name = 'alone')`)
	trigger(s, s.fleet[0].API, "alone")
	await(s, "another", func() bool { return len(s.w.At("/alone")) == 2 })
	return func() { s.w.Release("/alone") }
}

func unreachable(s *site) (end func()) {
	port := newDeadPort(s.T)
	s.create(many(5, "unreachable", "http://"+port.addr, process.JobSpec{"schedule": every("1s")})...)
	return func() { port.open() }
}

func refusing(s *site) (end func()) {
	s.w.Script("/refuses", Answer{Status: 400})
	s.w.Script("/told", Answer{Status: 410})
	s.create(job("told", s.w.URL+"/told", process.JobSpec{
		"notify": []any{map[string]any{"on": []string{"dead"}, "url": s.w.URL + "/refuses"}},
	}))
	return func() { s.w.Script("/refuses", Answer{}) }
}

func crowd(s *site) (end func()) {
	s.w.Script("/crowd", Answer{Delay: 2 * time.Second})
	s.create(many(40, "crowd", s.w.URL+"/crowd", process.JobSpec{"queue": "narrow", "schedule": delayed("100ms")})...)
	return func() { s.w.Script("/crowd", Answer{}) }
}

func keyFor(life string) func(*site) (end func()) {
	return func(s *site) (end func()) {
		key := do[struct{ ID string }](s, s.fleet[0].API, "POST", "/v1/api-keys", map[string]any{
			"name": "short", "role": "viewer", "expires_in": life,
		})
		return func() { s.call("DELETE", "/v1/api-keys/"+key.ID, nil) }
	}
}

func killed(s *site) (end func()) {
	victim := s.fleet[1]
	s.w.Script("/hangs", Answer{Hang: true})
	s.create(job("hangs", s.w.URL+"/hangs", process.JobSpec{"queue": "victim", "timeout": "5m"}))
	await(s, "the victim's request", func() bool { return len(s.w.At("/hangs")) == 1 })
	victim.Kill()
	return func() {
		s.w.Release("/hangs")
		s.leave(victim)
		s.join("--queues=victim=5")
	}
}

func lockedOut(s *site) (end func()) {
	locked := many(120, "locked", s.w.URL+"/fine", process.JobSpec{"schedule": every("10s")})
	s.create(locked...)
	tx := stranger(s, s.dsn)
	locks(s, tx, `schedules WHERE job_id IN (SELECT id FROM punctual.jobs WHERE name LIKE 'locked-%')`)
	return func() { must(s, tx.Rollback(s.Context())) }
}

func refusedRuns(s *site) (end func()) {
	s.create(job("refused", s.w.URL+"/fine", process.JobSpec{"schedule": every("1s")}))
	execute(s, connect(s, s.dsn), `
		CREATE FUNCTION punctual.refuse_run() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			IF NEW.job_id = (SELECT id FROM punctual.jobs WHERE name = 'refused') THEN RAISE EXCEPTION 'refused'; END IF;
			RETURN NEW;
		END $$;
		CREATE TRIGGER refuse BEFORE INSERT ON punctual.runs FOR EACH ROW EXECUTE FUNCTION punctual.refuse_run()`)
	return func() {
		execute(s, connect(s, s.dsn), `DROP TRIGGER refuse ON punctual.runs`)
		s.call("DELETE", "/v1/jobs/refused", nil)
		execute(s, connect(s, s.dsn), `DELETE FROM punctual.set_aside`)
	}
}

func noProxy(s *site) (end func()) {
	r := s.join("--queues=proxied=5", "--egress-proxy=http://"+newDeadPort(s.T).addr)
	s.create(job("proxied", s.w.URL+"/fine", process.JobSpec{"queue": "proxied"}))
	return func() {
		s.call("DELETE", "/v1/jobs/proxied", nil)
		s.leave(r)
	}
}

func oldZones(s *site) (end func()) {
	r := s.join("--queues=old=1", "--zone-data="+laterZoneData(s))
	return func() { s.leave(r) }
}

func partitionless(s *site) (end func()) {
	tx := stranger(s, s.dsn)
	conn := connect(s, s.dsn)
	for _, table := range queryAll[string](s, conn, `
		SELECT inhrelid::regclass::text FROM pg_catalog.pg_inherits
		WHERE inhparent = 'punctual.runs'::regclass AND inhrelid::regclass::text > to_char(now(), '"punctual.runs_"YYYYMMDD')
		ORDER BY 1 DESC LIMIT 3`) {
		execute(s, conn, `DROP TABLE `+table)
	}
	_, err := tx.Exec(s.Context(), `LOCK TABLE punctual.runs IN SHARE UPDATE EXCLUSIVE MODE`)
	must(s, err)
	return func() {
		must(s, tx.Rollback(s.Context()))
		s.join("--queues=spare=1") // makes them at once, not after a minute
	}
}

func unarchived(s *site) (end func()) {
	conn := connect(s, s.dsn)
	execute(s, conn, `SELECT punctual.create_partitions('2020-01-01', '2020-01-02')`)
	r := s.join("--queues=archives=1", "--archive-command=test -d /nowhere/%d")
	await(s, "the command to fail", func() bool {
		return query[int](s, conn, `SELECT coalesce(max(failures), 0) FROM punctual.archives`) > 0
	})
	execute(s, conn, `UPDATE punctual.archives SET waiting_since = now() - interval '7 h'`)
	return func() {
		s.leave(r)
		s.join("--queues=dropped=1", "--archive-command=none")
		await(s, "the day to be dropped", func() bool {
			return query[bool](s, conn, `SELECT to_regclass('punctual.runs_20200101') IS NULL`)
		})
	}
}

func frozenTenant(s *site) (end func()) {
	s.call("POST", "/v1/tenants", map[string]any{"name": "frozen"})
	frozen := s.fleet[0].API.WithHeader("Punctual-Tenant", "frozen")
	do[any](s, frozen, "POST", "/v1/freeze", map[string]any{"scope": "tenant"})
	return func() { do[any](s, frozen, "POST", "/v1/unfreeze", map[string]any{"scope": "tenant"}) }
}

func noDatabase(s *site) (end func()) {
	s.proxy.Refuse()
	return s.proxy.Heal
}

func overlapping(s *site) (end func()) {
	s.w.Script("/long", Answer{Hang: true})
	first := nextSecond(2 * time.Second)
	s.create(job("long", s.w.URL+"/long", process.JobSpec{
		"schedule": everyUntil("30m", first, first.Add(12*time.Hour)), "concurrency_policy": "forbid", "timeout": "5m",
		"notify": []any{map[string]any{"on": []string{"overlapping"}, "url": s.w.URL + "/notices"}},
	}))
	await(s, "the run", func() bool { return len(s.w.At("/long")) == 1 })
	conn := connect(s, s.dsn)
	for n := range 3 {
		s.clock.Step(time.Duration(n+1) * 30 * time.Minute)
		await(s, "the skip of a slot", func() bool {
			return query[int](s, conn, `
				SELECT coalesce(sum(coalesce(skipped_count, 1)), 0) FROM punctual.runs WHERE reason = 'overlap'`) == n+1
		})
	}
	serve(s, s.dsn) // looks for such jobs at once, not after a minute
	return func() {
		s.call("POST", "/v1/jobs/long/pause", nil)
		s.w.Release("/long")
		s.clock.Step(2 * time.Hour) // such jobs are looked for each five minutes
		serve(s, s.dsn)
	}
}

// ahead leaves it to overlapping to set the clock, which needs it too.
func ahead(s *site) (end func()) {
	return func() {
		await(s, "no job to be overlapping", func() bool { return s.p.found(`punctual_overlapping_jobs > 0`) == 0 })
		s.clock.Step(0)
	}
}

func losing(s *site) (end func()) {
	s.claim.crash(s.T, s.server)
	s.claim.witness.Release("/once")
	return func() { s.call("POST", "/v1/jobs/recurring/pause", nil) }
}
