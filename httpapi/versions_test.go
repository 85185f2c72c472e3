package httpapi

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"punctual/httpapi/auth"
	"punctual/httpapi/problem"
	"punctual/scheduler/delivery/guard"
	"punctual/scheduler/jobspec"
	"punctual/store/audit"
	"punctual/store/jobs"
	"punctual/store/tenants"
)

func TestWhoMayReadAJobMayReadItsChanges(t *testing.T) {
	t.Parallel()
	s := guarded(t)
	s.tenant("beta")
	editor := s.as("default", auth.RoleEditor)
	id := editor.create(minimal("n"))["id"].(string)
	editor.create(minimal("other"))
	editor.do("POST", "/v1/jobs/n/pause", `{"note":"why"}`).want(200)
	editor.do("POST", "/v1/jobs/n/trigger", "").want(202)
	viewer := s.as("default", auth.RoleViewer)
	for _, ref := range []string{"n", id} {
		got := []string{}
		for _, c := range get[List[audit.JobChange]](viewer, "/v1/jobs/"+ref+"/changes").Data {
			got = append(got, fmt.Sprintln(c.Action, c.Resource, or(c.ActorName, "")))
		}
		want := []string{"run.trigger run editor\n", "job.pause job editor\n", "job.create job editor\n"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", ref, diff)
		}
	}
	viewer.do("GET", "/v1/jobs/n/changes", "").want(200).hides("127.0.0.1", "address", "request_id")
	if page := get[List[audit.JobChange]](viewer, "/v1/jobs/n/changes?limit=2"); page.NextCursor == nil {
		t.Error("no cursor")
	} else if rest := get[List[audit.JobChange]](viewer, "/v1/jobs/n/changes?cursor="+*page.NextCursor); len(rest.Data) != 1 {
		t.Errorf("%d are left", len(rest.Data))
	}
	viewer.do("GET", "/v1/audit-log", "").code(problem.CodeForbidden)
	s.as("beta", auth.RoleAdmin).do("GET", "/v1/jobs/"+id+"/changes", "").code(problem.CodeNotFound)
	editor.do("DELETE", "/v1/jobs/n", "").want(204)
	viewer.do("GET", "/v1/jobs/n/changes", "").code(problem.CodeNotFound)
	if gone := get[List[audit.JobChange]](viewer, "/v1/jobs/"+id+"/changes"); len(gone.Data) != 4 {
		t.Errorf("of the deleted job: %+v", gone.Data)
	}
}

// story returns the versions of a job, each in a line.
func (s *service) story(job string) []string {
	s.t.Helper()
	lines := []string{}
	for _, v := range get[List[jobs.Version]](s, "/v1/jobs/"+job+"/versions").Data {
		by, _, _ := strings.Cut(or(v.By, "?"), " (")
		line := fmt.Sprintf("%d %s by %s: %s", v.Number, v.State, by, strings.Join(v.Changed, " "))
		if v.Restored != nil {
			line += fmt.Sprintf(", restored %d", *v.Restored)
		}
		lines = append(lines, line)
	}
	return lines
}

func TestAFormerVersionIsRestored(t *testing.T) {
	t.Parallel()
	s := guarded(t)
	editor, viewer := s.as("default", auth.RoleEditor), s.as("default", auth.RoleViewer)
	editor.create(`{"name":"n","schedule":{"cron":"0 3 * * *"},"target":{"url":"http://example.com/a"},"labels":{"a":"1"}}`)
	editor.do("PATCH", "/v1/jobs/n", `{"schedule":{"every":"1h"},"labels":{"a":"2"}}`).want(200)
	editor.do("PATCH", "/v1/jobs/n", `{"name":"m"}`).want(200)
	paused := editor.do("POST", "/v1/jobs/m/pause", `{"note":"resting"}`).want(200)
	viewer.do("POST", "/v1/jobs/m/versions/1/restore", "").code(problem.CodeForbidden)
	editor.do("POST", "/v1/jobs/m/versions/1/restore", "", `If-Match: "3"`).code(problem.CodeVersion)
	restored := into[Job](editor.do("POST", "/v1/jobs/m/versions/1/restore", "",
		"If-Match: "+paused.header.Get("ETag")).want(200))
	if restored.Schedule.Cron != "0 3 * * *" || restored.Labels["a"] != "1" || restored.Name != "m" ||
		!restored.Paused || restored.PauseNote != "resting" || restored.Version != 5 {
		t.Errorf("restored %+v", restored)
	}
	want := []string{
		"5 paused by key editor: labels.a schedule.cron schedule.every, restored 1", "4 paused by key editor: state",
		"3 active by key editor: name", "2 active by key editor: labels.a schedule.cron schedule.every",
		"1 active by key editor: ",
	}
	if diff := cmp.Diff(want, viewer.story("m")); diff != "" {
		t.Error(diff)
	}
	// The same once more changes nothing.
	if again := into[Job](editor.do("POST", "/v1/jobs/m/versions/5/restore", "").want(200)); again.Version != 5 {
		t.Errorf("it is at version %d", again.Version)
	}
	change := get[List[audit.JobChange]](viewer, "/v1/jobs/m/changes?limit=1").Data
	if len(change) != 1 || change[0].Action != audit.JobRestore ||
		!strings.Contains(string(change[0].After), `"restored_version":1`) {
		t.Errorf("the audit log has %+v", change)
	}
	// An edit is no pause: the pause is still that of who paused the job.
	if e := editor.do("GET", "/v1/jobs/m/explain?at=2099-01-01T03:00:00Z", "").want(200).fields()["pause"].(map[string]any); e["note"] != "resting" {
		t.Errorf("the pause is %v", e)
	}
	for _, path := range []string{"/99", "/0", "/x", "/1?against=98", "/1?against=0"} {
		if got := viewer.do("GET", "/v1/jobs/m/versions"+path, ""); got.status != 404 && got.status != 422 {
			t.Errorf("%s: %d", path, got.status)
		}
	}
	viewer.do("GET", "/v1/jobs/m/versions/99", "").code(problem.CodeNotFound, "version")
}

func TestVersionsAreListedAndCompared(t *testing.T) {
	t.Parallel()
	s := guarded(t)
	editor := s.as("default", auth.RoleEditor)
	editor.create(jobOf("n", `,"labels":{"a":"0"}`))
	for i := range 5 {
		editor.do("PATCH", "/v1/jobs/n", fmt.Sprintf(`{"labels":{"a":"%d"},"timeout":"%ds"}`, i+1, i+10)).want(200)
	}
	viewer, numbers := s.as("default", auth.RoleViewer), []int32{}
	for cursor := ""; ; {
		page := get[List[jobs.Version]](viewer, "/v1/jobs/n/versions?limit=2&cursor="+cursor)
		for _, v := range page.Data {
			if numbers = append(numbers, v.Number); v.Number > 2 && !slices.Equal(v.Changed, []string{"labels.a", "timeout"}) {
				t.Errorf("version %d changed %v", v.Number, v.Changed)
			}
		}
		if page.NextCursor == nil {
			break
		}
		cursor = *page.NextCursor
	}
	if diff := cmp.Diff([]int32{6, 5, 4, 3, 2, 1}, numbers); diff != "" {
		t.Error(diff)
	}
	viewer.do("GET", "/v1/jobs/n/versions?cursor=x", "").blames("query.cursor")
	v := get[jobs.WholeVersion](viewer, "/v1/jobs/n/versions/2?against=6")
	got := ""
	for _, d := range v.Differences {
		got += fmt.Sprintf("%s %s %s, ", d.Field, d.Before, d.After)
	}
	if want := `labels.a "5" "1", timeout "14s" "10s", `; got != want {
		t.Errorf("differ in %s", got)
	}
	if !strings.Contains(string(v.Definition), `"timeout":"10s"`) || v.Number != 2 {
		t.Errorf("%+v", v)
	}
	viewer.do("GET", "/v1/jobs/n/versions/2", "").want(200).hides("differences")
}

// A restored definition keeps to the rules of today.
func TestAVersionIsRestoredByTheRulesOfToday(t *testing.T) {
	t.Parallel()
	s := guarded(t)
	admin := s.as("default", auth.RoleAdmin)
	admin.do("PUT", "/v1/secrets/gone", `{"value":"s3cret"}`).want(201)
	admin.create(`{"name":"n","schedule":{"every":"10s"},"target":{"url":"http://127.0.0.1/","auth":{"type":"bearer","secret":"gone"}}}`)
	admin.do("PUT", "/v1/jobs/n", `{"schedule":{"every":"1h"},"target":{"url":"http://example.com/"}}`).want(200)
	restore := func(s *service) *reply { return s.do("POST", "/v1/jobs/n/versions/1/restore", "") }
	strict := s.another(Config{Guard: guard.New(nil)})
	strict.headers = admin.headers
	restore(strict).blames("definition.target.url")
	admin.do("DELETE", "/v1/secrets/gone", "").want(204)
	restore(admin).blames("definition.target.auth.secret")
	admin.do("PUT", "/v1/secrets/gone", `{"value":"s3cret"}`).want(201)
	_, err := s.store.Tenants.EditTenant(t.Context(), "default", func(t *tenants.Tenant) error {
		t.MinInterval = new(jobspec.DurationOf(60e9))
		return nil
	})
	must(t, err)
	restore(admin).blames("definition.schedule.every")
	if got := get[Job](admin, "/v1/jobs/n"); got.Version != 2 {
		t.Errorf("it is at version %d", got.Version)
	}
}

func TestAVersionIsRestoredWithItsSecrets(t *testing.T) {
	t.Parallel()
	s := guarded(t)
	editor := s.as("default", auth.RoleEditor)
	editor.create(jobOf("n", ""))
	target := func(value, header string) string {
		return `{"target":{"url":"http://example.com/","auth":{"type":"bearer","value":"` + value +
			`"},"secret_headers":{"X-Old":"` + header + `"}}}`
	}
	for _, value := range []string{"first", "second"} {
		editor.do("PATCH", "/v1/jobs/n", target(value, "same")).want(200)
	}
	editor.do("POST", "/v1/jobs/n/versions/2/restore", "").want(200)
	want := []string{
		"4 active by key editor: target.auth.value, restored 2", "3 active by key editor: target.auth.value",
		"2 active by key editor: target.auth.type target.auth.value target.secret_headers.X-Old", "1 active by key editor: ",
	}
	if diff := cmp.Diff(want, editor.story("n")); diff != "" {
		t.Error(diff)
	}
	for _, path := range []string{"/versions", "/versions/2", "/versions/4?against=3", "/changes"} {
		editor.do("GET", "/v1/jobs/n"+path, "").want(200).hides("sealed", "first", "second")
	}
	// The stored value is a new one, so it does not go with the version that it was restored from.
	var ids, jobIDs []string
	must(t, s.store.Pool().QueryRow(t.Context(), `
		SELECT array_agg(definition #>> '{target,auth,value,sealed}' ORDER BY version), array_agg(job_id::text)
		FROM punctual.job_versions WHERE version IN (2, 4)`).Scan(&ids, &jobIDs))
	if len(ids) != 2 || ids[0] == ids[1] {
		t.Errorf("the stored values are %v", ids)
	}
	// Writing the same value changes nothing: it is the one that was restored.
	if again := into[Job](editor.do("PATCH", "/v1/jobs/n", target("first", "same")).want(200)); again.Version != 4 {
		t.Errorf("it is at version %d", again.Version)
	}
}
