package dashboard

import (
	"log/slog"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/google/uuid"

	"punctual/httpapi"
	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
)

// approvable makes a run of etl whose steps transform and check have approval in place of a target and wait. It returns
// the path of the link of check with its token.
func (s site) approvable(name string) (workflow, check uuid.UUID, link string) {
	s.t.Helper()
	steps := etl()
	for _, i := range []int{1, 2} {
		steps[i] = jobspec.Step{Name: steps[i].Name, DependsOn: steps[i].DependsOn, Approval: &jobspec.Approval{
			Notify: []jobspec.ApprovalNotify{{Format: jobspec.FormatSlack, URL: "https://hooks.slack.com/services/T000/B000/XXXX"}},
		}}
	}
	workflow = s.workflow(name, steps, domain.StatusRunning, map[string]stepRun{
		"extract":   {status: "succeeded", attempt: 1, to: 90},
		"transform": {status: "running", attempt: 1, from: 90}, "check": {status: "running", attempt: 1, from: 90},
	})
	s.execute(`
		WITH waits AS (UPDATE punctual.runs SET accepted_at = started_at
		               WHERE parent_run = $1 AND status = 'running' RETURNING id, job_id, tenant)
		INSERT INTO punctual.ready (run_id, job_id, due_at, tenant, lane, waits)
		SELECT id, job_id, now() + interval '20 hours', tenant, 5, 'person' FROM waits`, workflow)
	check = domain.StepRunID(workflow, "check")
	var key []byte
	must(s.t, s.store.Pool().QueryRow(s.t.Context(), `SELECT key FROM punctual.run_token_key`).Scan(&key))
	return workflow, check, "/approvals/" + check.String() + "?token=" + domain.ApprovalToken(key, check, 0)
}

// guarded is the same site to visitors who must sign in.
func (s site) guarded() site {
	s.t.Helper()
	pages, err := New(Config{Log: slog.New(slog.DiscardHandler), Version: "test", Sessions: s.store.Secrets})
	must(s.t, err)
	api, err := httpapi.NewHandler(httpapi.Config{Store: s.store, Log: pages.Log, Pages: pages})
	must(s.t, err)
	server := httptest.NewServer(api)
	s.t.Cleanup(server.Close)
	return site{s.t, server.URL, s.store}
}

// The page of a link needs no session. To look at it decides nothing, and one decision counts.
func TestThePageOfALink(t *testing.T) {
	t.Parallel()
	s := serve(t, true)
	_, check, link := s.approvable("etl")
	path, token, _ := strings.Cut(link, "?token=")
	b := s.guarded().browser()
	b.get(path).want(401)
	for _, bad := range []string{"x", token[:len(token)-2] + "AA"} {
		b.get(path + "?token=" + bad).want(401).shows("open the link as it was sent")
		b.post(path, "token", bad, "decision", "approve").want(401)
	}
	seen := b.get(link).want(200).shows("etl: check", "waits for approval since", "sent to Slack hooks.slack.com", `value="approve"`)
	for name, want := range map[string]string{
		"X-Robots-Tag": "noindex, nofollow", "Referrer-Policy": "no-referrer", "Cache-Control": "no-store",
	} {
		if got := seen.header.Get(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	b.visit("POST", b.url+path, "cross-site", url.Values{"token": {token}, "decision": {"approve"}}).want(403)
	b.get(link).want(200).shows(`value="approve"`)
	b.post(path, "token", token, "decision", "maybe").want(422).shows(`value="approve"`)
	if to := b.post(path, "token", token, "decision", "reject", "note", "<b>wrong</b> day").want(303).to(); to != link {
		t.Errorf("sent to %s", to)
	}
	b.get(link).want(200).shows("waits no more", "rejected by the link sent to Slack hooks.slack.com", "&lt;b&gt;wrong").
		hides(`value="approve"`)
	b.post(path, "token", token, "decision", "approve").want(409).shows("was rejected by the link")
	s.browser().get("/runs/" + check.String()).want(200).shows("rejected by the link sent to Slack").
		hides("Waits for approval")
}

// The page of the workflow's run and that of the step's run have buttons, for those who may decide.
func TestARunIsApprovedOnItsPage(t *testing.T) {
	t.Parallel()
	s := serve(t, true)
	workflow, check, _ := s.approvable("etl")
	b, guarded := s.browser(), s.guarded()
	guarded.as("default", "viewer").get("/runs/" + check.String()).want(200).shows("Waits for approval").
		hides("/approve")
	b.get("/runs/"+workflow.String()).want(200).
		shows("Step check waits for approval", "Step transform waits for approval", "/runs/"+check.String()+"/reject",
			"check: waits for approval")
	approve := "/runs/" + check.String() + "/approve"
	if to := b.post(approve, "note", "fine", "from", workflow.String()).want(303).to(); to != "/runs/"+workflow.String() {
		t.Errorf("sent to %s", to)
	}
	b.get("/runs/" + workflow.String()).want(200).shows("Step transform waits").hides("Step check waits")
	b.get("/runs/"+check.String()).want(200).shows("Succeeded", "fine").hides("Waits for approval", "attempt 1")
	b.post("/runs/" + check.String() + "/reject").want(409).shows("was approved by a caller without sign-in")
	b.get("/jobs/etl/definition").want(200).shows("approval")
}

// The pages fit a phone, and are accessible.
func TestInABrowserAnApproval(t *testing.T) {
	t.Parallel()
	s := serve(t, true)
	workflow, check, link := s.approvable("nightly-etl-of-the-european-subsidiaries")
	b := s.chromium(t)
	b.fits(link, "/runs/"+workflow.String(), "/runs/"+check.String())
	b.accessible(link, "/runs/"+check.String())
	b.open(link)
	b.write("#note", "looks good")
	b.press("Approve")
	b.waits("main", "waits no more")
}
