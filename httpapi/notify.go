package httpapi

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"punctual/httpapi/api"
	"punctual/httpapi/auth"
	"punctual/httpapi/body"
	"punctual/httpapi/problem"
	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/scheduler/notice"
	"punctual/store/notices"
	"punctual/store/pg"
)

// testTimeout bounds the test of one recipient.
const testTimeout = 10 * time.Second

func (s *server) notifyRoutes() {
	api.Register(s.api, api.Operation{
		ID: "list-notices", Route: "GET /v1/notices", Role: auth.RoleViewer, Tag: tagTenants, Summary: "List notices",
		Errors: []int{422},
		Description: "The messages that recipients of notices took in the last 8 days, newest first, and the recipients " +
			"for which something waits.",
	}, s.listNotices)
	api.Register(s.api, api.Operation{
		ID: "get-notice", Route: "GET /v1/notices/{notice}", Role: auth.RoleViewer, Tag: tagTenants,
		Summary:     "Get a notice",
		Description: "With the names of all jobs that it is about. A message about many jobs names only some.",
	}, s.getNotice)
	api.RegisterBody[NotifyTest](s.api, api.Operation{
		ID: "test-notify", Route: "POST /v1/notify/test", Role: auth.RoleEditor, Tag: tagTenants,
		Summary: "Send a test notice",
		Asks: `{"entry":{"on":["failing","recovered"],"format":"slack",` +
			`"url":"https://hooks.slack.com/services/T000/B000/XXXX"}}`,
		Description: "Sends the test to the given entry, to all recipients of the given job, or, without either, to the " +
			"tenant's default recipients. The replica that gets this request sends the test at once and tries once. It " +
			"creates no run, and it does not call addresses that jobs may not call. The response gives the result for each " +
			"recipient. A test of pagerduty opens its own incident and resolves it. A test of alertmanager ends after five " +
			"minutes.",
	}, api.Optional, s.testNotify)
}

// Notices are a page of notices, and what waits.
type Notices struct {
	List[notices.Notice]
	Waiting []notices.Waiting `json:"waiting" doc:"The recipients for which something waits, at most 100."`
}

type listNoticesInput struct {
	From  instantParam `query:"from" doc:"Only notices delivered at or after this instant." example:"2026-12-01T00:00:00Z"`
	To    instantParam `query:"to" doc:"Only notices delivered before this instant." example:"2026-12-02T00:00:00Z"`
	JobID string       `query:"job_id" format:"uuid" doc:"Only notices about the job with this id."`
	Paging
}

func (s *server) listNotices(ctx context.Context, tenant int32, in *listNoticesInput) (*answer[Notices], error) {
	id, err := optionalID("query.job_id", in.JobID, "must be the id of a job")
	if err != nil {
		return nil, err
	}
	filter := notices.Filter{From: in.From.at, To: in.To.at, Page: in.page()}
	if id != nil {
		filter.Job = *id
	}
	list, waiting, next, err := s.Store.Notices.ListNotices(ctx, tenant, filter)
	return show(Notices{List[notices.Notice]{list, pg.OrNull(next)}, waiting}, err)
}

type noticeRef struct {
	Notice pathID `path:"notice" doc:"Id of the notice." example:"019ad98a-2a60-8d07-9c52-7b0f1e3d4a86"`
}

func (r noticeRef) Exists() error { return r.Notice.exists() }

// NotFound implements api.Named.
func (noticeRef) NotFound() string { return "There is no notice with that id." }

func (s *server) getNotice(ctx context.Context, tenant int32, in *noticeRef) (*answer[notices.Detail], error) {
	return show(s.Store.Notices.GetNotice(ctx, tenant, in.Notice.id))
}

// NotifyTest is the optional body that asks for a test notice.
type NotifyTest struct {
	Job   string          `json:"job,omitempty" minLength:"1" maxLength:"128" doc:"Id or name of a job. The test is sent to all recipients of the job's notices. Absent: to entry alone." example:"daily-invoice-gen"`
	Entry *jobspec.Notify `json:"entry,omitempty" doc:"An entry in the form of a job's notify. Its events (on) are ignored here. Absent: the recipients of job."`
}

func (t NotifyTest) validate() []problem.FieldError {
	var fields []problem.FieldError
	if t.Job != "" && t.Entry != nil {
		fields = append(fields,
			problem.At("body", "give a job or an entry, not both; give neither to test the tenant's default"))
	}
	if t.Job != "" && !jobspec.NameForm.MatchString(t.Job) && !uuidForm.MatchString(t.Job) {
		fields = append(fields, problem.At("body.job", "is neither the id nor the name of a job"))
	}
	if t.Entry == nil {
		return fields
	}
	for _, p := range jobspec.ValidateNotify("entry", []jobspec.Notify{t.entry()}) {
		fields = append(fields, problem.At("body.entry"+p.Field[len("entry[0]"):], p.Message))
	}
	return fields
}

// entry returns the given entry, with all events if it names none.
func (t NotifyTest) entry() jobspec.Notify {
	entry := *t.Entry
	if len(entry.On) == 0 {
		entry.On = jobspec.Events
	}
	return entry
}

// NotifyResult is the result of a test notice for one recipient.
type NotifyResult struct {
	Format     jobspec.Format `json:"format" enum:"json,slack,pagerduty,alertmanager,teams,email,template" doc:"The form it was sent in." example:"slack"`
	URL        string         `json:"url" doc:"Where it was sent; for email, a mailto URL." example:"https://hooks.slack.com/services/T000/B000/XXXX"`
	Delivered  bool           `json:"delivered" doc:"Whether it was answered with a 2xx; for email, whether the mail server took it." example:"true"`
	HTTPStatus *int           `json:"http_status" doc:"Status of the response, if there was one." example:"200"`
	Reason     *string        `json:"reason" doc:"Why it was not delivered: one of the reasons that runs have, or mail_refused: the mail server did not take it."`
	Error      *string        `json:"error" doc:"The same, for people."`
	Response   *string        `json:"response" doc:"The first 200 bytes of the response, if the notice was not delivered."`
}

// NotifyResults are the results of a test notice, one per recipient.
type NotifyResults struct {
	Data []NotifyResult `json:"data" doc:"One result for each recipient; empty when there are no recipients."`
}

func (s *server) testNotify(
	ctx context.Context, tenant int32, in *body.Body[NotifyTest],
) (*answer[NotifyResults], error) {
	asked := in.Value
	problems := asked.validate()
	if asked.Entry != nil {
		for _, e := range s.forbiddenNotify(tenant, "body", []jobspec.Notify{*asked.Entry}) {
			problems = append(problems, problem.At(strings.Replace(e.Location, ".notify[0]", ".entry", 1), e.Message))
		}
	}
	if err := in.Check(problems...); err != nil {
		return nil, err
	}
	own, err := s.Store.Tenants.GetTenantByID(ctx, tenant)
	if err != nil {
		return nil, err
	}
	list, job := own.Notify, "notify-test"
	switch {
	case asked.Entry != nil:
		list = []jobspec.Notify{asked.entry()}
	case asked.Job != "":
		record, err := s.Store.Jobs.GetJob(ctx, tenant, asked.Job)
		if err != nil {
			return nil, err
		}
		job = record.Definition.Name
		if record.Definition.Notify != nil {
			list = record.Definition.Notify
		}
	}
	results, err := s.sendTests(ctx, tenant, own.Name, job, domain.Recipients(list))
	return show(NotifyResults{results}, err)
}

// sendTests tests all recipients at the same time.
func (s *server) sendTests(
	ctx context.Context, tenant int32, name, job string, to []jobspec.Recipient,
) ([]NotifyResult, error) {
	results := make([]NotifyResult, len(to))
	var sending errgroup.Group
	for i, r := range to {
		sending.Go(func() (err error) {
			results[i], err = s.sendTest(ctx, tenant, name, job, r)
			return err
		})
	}
	return results, sending.Wait()
}

// sendTest tests one recipient. The notice is about a random job id, so it resolves no open incident.
func (s *server) sendTest(
	ctx context.Context, tenant int32, name, job string, to jobspec.Recipient,
) (NotifyResult, error) {
	result := NotifyResult{Format: to.Format, URL: to.URL}
	if s.Transport == nil {
		return result, errors.New("testing a recipient: this server has nothing to send by")
	}
	now := time.Now().UTC()
	digest := domain.Digest{Job: job, JobID: uuid.New(), Tenant: name, Events: []domain.DigestEvent{
		{Event: jobspec.EventTest, Count: 1, FirstAt: now, LastAt: now, Runs: []domain.DigestRun{}},
	}}
	bodies, err := notice.Test(digest, to, now)
	if err != nil {
		return result, err
	}
	for _, b := range bodies {
		sent, err := s.Transport.Send(ctx, tenant, to, job, b, testTimeout)
		if err != nil {
			return result, fmt.Errorf("sending a test notice: %w", err)
		}
		result.Delivered, result.HTTPStatus = sent.OK(), pg.OrNull(sent.Status)
		result.Reason, result.Error = pg.OrNull(string(sent.Reason)), pg.OrNull(sent.Error)
		if !sent.OK() {
			result.Response = pg.OrNull(notice.Excerpt(string(sent.Body)))
			break
		}
	}
	return result, nil
}
