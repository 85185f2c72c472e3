package dashboard

import (
	"testing"
	"time"

	"punctual/httpapi"
	"punctual/httpapi/client"
	"punctual/scheduler/jobspec"
)

func TestAJobShowsItsPendingRunsUntilTheyAreCancelled(t *testing.T) {
	t.Parallel()
	s := serve(t, false)
	editor, viewer := s.as("default", "editor"), s.as("default", "viewer")
	editor.create("n")
	viewer.get("/jobs/n").want(200).hides("Pending runs")
	const key = ` <a/b> & "c" `
	by := client.New(s.url).WithKey(s.key("default", "editor"))
	d, err := client.TriggerJobAt.Do(t.Context(), by, httpapi.TriggerInput{
		DatedInput: httpapi.DatedInput{
			Key: key, Delay: jobspec.DurationOf(150 * time.Minute), Sequence: new(int64(7)),
		},
	}, "n")
	must(t, err)
	sound(viewer.get("/jobs/n").want(200).shows("Pending runs", "&lt;a/b&gt;", "in 2 h", ">7<", "key editor").
		hides("/jobs/n/dated/cancel"))
	sound(viewer.get("/runs/"+d.Run.String()).want(200).shows("Due in 2 h", "&lt;a/b&gt;", "<strong>due</strong>"))
	viewer.post("/jobs/n/dated/cancel", "key", key).want(403)
	sound(editor.get("/jobs/n").want(200).shows(`action="/jobs/n/dated/cancel"`))
	viewer.post("/jobs/n/dated/move", "key", key, "at", "2199-01-01T09:00").want(403)
	editor.post("/jobs/n/dated/move", "key", key, "zone", "UTC", "at", "2199-01-01T09:00").want(303)
	editor.get("/jobs/n").want(200).shows("is moved.", "2199-01-01")
	editor.post("/jobs/n/dated/cancel", "key", key).want(303)
	editor.get("/jobs/n").want(200).shows("is cancelled.").hides("Pending runs")
	editor.post("/jobs/n/dated/cancel", "key", key).want(404)

	d, err = client.TriggerJobAt.Do(t.Context(), by, httpapi.TriggerInput{DatedInput: httpapi.DatedInput{Delay: jobspec.DurationOf(time.Hour)}}, "n")
	must(t, err)
	editor.post("/runs/" + d.Run.String() + "/cancel").want(303)
	editor.get("/jobs/n").want(200).shows("is being cancelled.").hides("Pending runs")
}
