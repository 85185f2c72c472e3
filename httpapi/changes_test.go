package httpapi

import (
	"testing"

	"punctual/httpapi/auth"
	"punctual/httpapi/problem"
)

func TestRunsThatHaveEndedAreFollowed(t *testing.T) {
	t.Parallel()
	s := guarded(t)
	operator := s.as("default", auth.RoleOperator)
	operator.do("POST", "/v1/tenants", `{"name":"alpha"}`).want(201)
	viewer := s.as("alpha", auth.RoleViewer)
	const path = "/v1/runs/changes"
	viewer.do("GET", path, "").code(problem.CodeState, "changes_kept")
	operator.do("PATCH", "/v1/tenants/alpha", `{"changes_kept":"30m"}`).blames("body.changes_kept")
	operator.do("PATCH", "/v1/tenants/alpha", `{"changes_kept":"721h"}`).blames("body.changes_kept")
	operator.do("PATCH", "/v1/tenants/alpha", `{"changes_kept":"24h"}`).want(200).shows(`"changes_kept":"24h0m0s"`)
	start := viewer.do("GET", path, "").want(200).shows(`"data":[]`, `"more":false`, `"gone":0`).fields()["next"].(string)

	editor := s.as("alpha", auth.RoleEditor)
	editor.create(minimal("n"))
	run := editor.do("POST", "/v1/jobs/n/trigger", "").want(202).fields()["id"].(string)
	editor.do("POST", "/v1/runs/"+run+"/cancel", "").want(202)
	execute := func(sql string) {
		t.Helper()
		_, err := s.store.Pool().Exec(t.Context(), sql)
		must(t, err)
	}
	execute(`DO $$ BEGIN -- another database of the cluster may have an older transaction
		FOR n IN 1..2000 LOOP
			EXIT WHEN (SELECT max(xid) FROM punctual.changes) < pg_snapshot_xmin(pg_current_snapshot());
			COMMIT; PERFORM pg_sleep(0.01);
		END LOOP; END $$`)
	viewer.do("GET", path+"?after="+start, "").want(200).shows(run, `"status":"cancelled"`)
	viewer.do("GET", path+"?view=summary", "").want(200).shows(run).hides(`"created_at"`)
	viewer.do("GET", path+"?after=nonsense", "").blames("query.after")

	execute(`DELETE FROM punctual.runs`)
	next := viewer.do("GET", path, "").want(200).shows(`"data":[]`, `"gone":1`).fields()["next"].(string)
	execute(`DELETE FROM punctual.changes`)
	viewer.do("GET", path+"?after="+next, "").code(problem.CodeCursorGone, "ahead of the database", "leave after out")
}
