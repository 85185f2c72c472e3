package httpapi

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"punctual/httpapi/auth"
	"punctual/httpapi/problem"
	"punctual/store/tenants"
)

const grantsOfAlpha = "/v1/tenants/alpha/grants"

func TestGrantsAreMadeListedAndTakenBack(t *testing.T) {
	t.Parallel()
	s := guarded(t)
	s.tenant("alpha")
	operator := s.as("default", auth.RoleOperator)
	const monitor = `{"role":"pg_monitor"}`
	made := operator.do("PUT", grantsOfAlpha+"/b_jobs", monitor).want(201)
	g := into[tenants.Grant](made)
	want := tenants.NewGrant{Schema: "b_jobs", Role: "pg_monitor"}
	if g.NewGrant != want || g.CreatedAt.IsZero() || !strings.HasPrefix(g.CreatedBy, "key ") {
		t.Errorf("%+v", g)
	}
	if again := operator.do("PUT", grantsOfAlpha+"/b_jobs", monitor).want(200); string(again.body) != string(made.body) {
		t.Errorf("%s, and again %s", made.body, again.body)
	}
	operator.do("PUT", grantsOfAlpha+"/a_jobs", monitor).want(201)
	first := get[List[tenants.Grant]](operator, grantsOfAlpha+"?limit=1")
	second := get[List[tenants.Grant]](operator, grantsOfAlpha+"?limit=1&cursor="+*first.NextCursor)
	if first.Data[0].Schema != "a_jobs" || !cmp.Equal(second, List[tenants.Grant]{Data: []tenants.Grant{g}}) {
		t.Errorf("%+v, then %+v", first, second)
	}

	s.exec(`CREATE VIEW public.uses AS SELECT b_jobs.cancel('job', 'k')`)
	operator.do("DELETE", "/v1/tenants/default/grants/b_jobs", "").code(problem.CodeNotFound, "no grant of that schema")
	told := into[Revoked](operator.do("DELETE", grantsOfAlpha+"/b_jobs", "").want(200))
	if len(told.Left) != 2 || !strings.Contains(told.Left[0], "view public.uses") {
		t.Errorf("what is left: %q", told.Left)
	}
	operator.do("DELETE", grantsOfAlpha+"/b_jobs", "").code(problem.CodeNotFound)
	if left := get[List[tenants.Grant]](operator, grantsOfAlpha); len(left.Data) != 1 {
		t.Errorf("%+v", left)
	}
	var log []string
	for _, e := range operator.acting("alpha").items("/v1/audit-log?resource=tenant") {
		if e["actor_kind"] == "key" {
			log = append(log, fmt.Sprintln(e["action"], e["before"], e["after"]))
		}
	}
	wanted := []string{
		"tenant.revoke map[role:pg_monitor schema:b_jobs] <nil>\n",
		"tenant.grant <nil> map[role:pg_monitor schema:a_jobs]\n",
		"tenant.grant <nil> map[role:pg_monitor schema:b_jobs]\n",
	}
	if diff := cmp.Diff(wanted, log); diff != "" {
		t.Error(diff)
	}
}

func TestGrantsAreChecked(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.tenant("alpha")
	s.exec(`CREATE SCHEMA taken; CREATE TABLE taken.mine ()`)
	put := func(path, role string) *reply { return s.do("PUT", path, fmt.Sprintf(`{"role":%q}`, role)) }
	put("/v1/tenants/default/grants/others", "pg_monitor").want(201)
	put(grantsOfAlpha+"/jobs", "pg_monitor").want(201)

	put("/v1/tenants/nobody/grants/n", "pg_monitor").code(problem.CodeNotFound, "tenant")
	s.do("GET", "/v1/tenants/nobody/grants", "").code(problem.CodeNotFound, "tenant")
	s.do("GET", grantsOfAlpha+"?cursor=A", "").blames("query.cursor")
	s.do("DELETE", grantsOfAlpha+"/a%00b", "").code(problem.CodeNotFound)
	put(grantsOfAlpha+"/taken", "pg_monitor").code(problem.CodeState, "taken", "not empty")
	put(grantsOfAlpha+"/others", "pg_monitor").code(problem.CodeState, "pg_monitor for tenant default")
	put(grantsOfAlpha+"/jobs", "pg_signal_backend").code(problem.CodeState, "pg_monitor for tenant alpha")
	put(grantsOfAlpha+"/n", "nobody").wantMessage("body.role", `"nobody"`, "CREATE ROLE")
	put(grantsOfAlpha+"/A", "pg_monitor").wantMessage("path.schema", `"A"`, "small letters")
	put(grantsOfAlpha+"/pg_n", strings.Repeat("n", 64)).blames("path.schema", "body.role")
	s.do("PUT", grantsOfAlpha+"/n", `{"rol":"n"}`).blames("body.rol", "body.role")

	const database = `DO $$ BEGIN EXECUTE format('%s', current_database()); END $$`
	s.exec(fmt.Sprintf(database, `REVOKE CREATE ON DATABASE %I FROM CURRENT_USER`))
	put(grantsOfAlpha+"/n", "pg_monitor").code(problem.CodeState, "`GRANT CREATE ON DATABASE ", "`CREATE SCHEMA n ")
	put(grantsOfAlpha+"/jobs", "pg_monitor").want(200)
	s.exec(fmt.Sprintf(database, `GRANT CREATE ON DATABASE %I TO CURRENT_USER`))
	put(grantsOfAlpha+"/n", "pg_monitor").want(201)
}
