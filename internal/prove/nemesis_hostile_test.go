package prove

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"punctual/httpapi/client"
	"punctual/internal/process"
)

// hostile is a tenant whose rows fail or hang when they are written, and that gives as much work as it may.
const hostile = "hostile"

const (
	hostileJobs        = 6
	hostileSubscribers = 30
	hostileSteps       = 20
)

// harmable makes the writes of rows fail or hang that a table names. All tables are harmable that name a job. What
// harms is a row, not a trigger, because creating a trigger would wait for all who write.
const harmable = `
	CREATE SCHEMA harm;
	CREATE TABLE harm.done (tbl text, job uuid, hangs boolean);
	CREATE FUNCTION harm.does() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
	DECLARE
		item    uuid;
		to_hang boolean;
	BEGIN
		IF EXISTS (SELECT FROM harm.done WHERE tbl = TG_ARGV[0]) THEN
			IF TG_ARGV[1] = 'job_id' THEN
				item := coalesce(NEW.job_id, OLD.job_id);
			ELSE
				SELECT job_id INTO item FROM punctual.runs WHERE id = coalesce(NEW.run_id, OLD.run_id);
			END IF;
			SELECT hangs INTO to_hang FROM harm.done WHERE tbl = TG_ARGV[0] AND job = item;
			IF to_hang THEN
				PERFORM pg_sleep(30);
			ELSIF FOUND THEN
				RAISE EXCEPTION 'the row is damaged' USING ERRCODE = 'data_corrupted';
			END IF;
		END IF;
		RETURN coalesce(NEW, OLD);
	END $$;
	DO $$
	DECLARE
		t record;
	BEGIN
		FOR t IN
			SELECT c.relname, min(a.attname) AS item
			FROM pg_class c
			JOIN pg_attribute a ON a.attrelid = c.oid
			WHERE c.relnamespace = 'punctual'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
			  AND a.attname IN ('job_id', 'run_id') AND NOT a.attisdropped AND c.relname <> 'set_aside'
			  AND has_table_privilege(c.oid, 'TRIGGER')
			GROUP BY c.relname
		LOOP
			EXECUTE format('CREATE TRIGGER harm BEFORE INSERT OR UPDATE OR DELETE ON punctual.%I FOR EACH ROW
				EXECUTE FUNCTION harm.does(%L, %L)', t.relname, t.relname, t.item);
		END LOOP;
	END $$`

// harbour adds the hostile tenant. Its jobs recur, follow events, and are workflows with many steps.
func (b *besieged) harbour(m mix) {
	b.t.Helper()
	must(b.t, b.execute(`INSERT INTO punctual.tenants (name) VALUES ($1)`, hostile))
	must(b.t, b.execute(harmable))
	api := b.members[0].replica.API.WithHeader("Punctual-Tenant", hostile)
	b.witness.Script("/hostile", Answer{Body: strings.Repeat("[", 30<<10)})
	url := b.witness.URL + "/hostile"
	for i, spec := range inTurn(many(hostileJobs, "hostile", url, m.everySecond()), "allow", "forbid", "wait", "queue") {
		spec["expires_after"] = []string{"20s", "2m"}[i%2]
		spec["missed"] = map[string]any{"policy": "fire_once"}
		do[any](b.t, api, "POST", "/v1/jobs", spec)
	}
	for i := range hostileSubscribers {
		spec := job(fmt.Sprint("subscriber-", i), url, process.JobSpec{"concurrency_policy": "allow"})
		spec["schedule"] = map[string]any{
			"event": "flood", "filter": map[string]any{fmt.Sprint("field_", i): i},
		}
		do[any](b.t, api, "POST", "/v1/jobs", spec)
	}
	do[any](b.t, api, "POST", "/v1/jobs", hostileFlow(url))
}

// hostileFlow is a workflow all of whose steps but the first begin at once.
func hostileFlow(url string) process.JobSpec {
	steps := []any{map[string]any{"name": "first", "target": map[string]any{"url": url}}}
	for i := range hostileSteps {
		steps = append(steps, map[string]any{
			"name": fmt.Sprint("then-", i), "target": map[string]any{"url": url}, "depends_on": []string{"first"},
		})
	}
	return process.JobSpec{"name": "broad", "steps": steps, "concurrency_policy": "allow"}
}

// harm does one hostile thing. The database and the replicas may be away.
func (b *besieged) harm(rng *rand.Rand) {
	replicas := b.live()
	if len(replicas) == 0 {
		return
	}
	api := replicas[rng.IntN(len(replicas))].API.WithHeader("Punctual-Tenant", hostile)
	switch n := rng.IntN(8); {
	case n < 5:
		b.damage(rng, n < 2)
	case n < 7:
		if sends(b, api, "/v1/jobs/broad/trigger", map[string]any{"body": map[string]any{"x": strings.Repeat("x", 200<<10)}}) {
			b.note("a large input of many steps")
		}
	default:
		fields := map[string]any{}
		for i := range 900 {
			fields[fmt.Sprint("field_", i)] = i
		}
		if sends(b, api, "/v1/events/flood", map[string]any{"body": fields}) {
			b.note("an event with many fields for many jobs")
		}
	}
}

func sends(b *besieged, api *client.Client, path string, body any) bool {
	_, err := api.Do(b.t.Context(), "POST", path, body, nil)
	return err == nil
}

// damage lets the rows of a hostile job in one table fail or hang for some seconds.
func (b *besieged) damage(rng *rand.Rand, hangs bool) {
	what := map[bool]string{false: "a row that fails", true: "a row that hangs"}[hangs]
	tables := []string{"schedules", "ready", "exclusive", "runs", "attempts", "run_data", "dead_letters"}
	table := tables[rng.IntN(len(tables))]
	name := fmt.Sprint("hostile-", rng.IntN(hostileJobs))
	if rng.IntN(4) == 0 {
		name = "broad"
	}
	if b.execute(`INSERT INTO harm.done SELECT $1, id, $3 FROM punctual.jobs WHERE name = $2`, table, name, hangs) != nil {
		return
	}
	defer b.fault(what)()
	pause(b.t, rng, time.Second, 15*time.Second)
	await(b.t, "the row to be mended", func() bool {
		return b.execute(`DELETE FROM harm.done WHERE tbl = $1 AND hangs = $2`, table, hangs) == nil
	})
}

// amend mends all rows, and has everything that was set aside tried again until nothing is.
func (b *besieged) amend() {
	await(b.t, "all rows to be mended", func() bool { return b.execute(`TRUNCATE harm.done`) == nil })
	most := 0
	await(b.t, "what was set aside to be done", func() bool {
		replicas := b.live()
		if len(replicas) == 0 {
			return false
		}
		api := replicas[0].API
		var list struct {
			Data []struct{ Kind, Item string }
		}
		if _, err := api.Do(b.t.Context(), "GET", "/v1/set-aside", nil, &list); err != nil {
			return false
		}
		most = max(most, len(list.Data))
		for _, item := range list.Data {
			_, _ = api.Do(b.t.Context(), "POST", "/v1/set-aside/"+item.Kind+"/"+item.Item+"/retry", nil, nil)
		}
		return len(list.Data) == 0
	})
	b.t.Logf("%d items were set aside at the end", most)
}
