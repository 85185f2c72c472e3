package httpapi

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"punctual/httpapi/api"
	"punctual/httpapi/auth"
	"punctual/httpapi/body"
	"punctual/httpapi/problem"
	"punctual/scheduler/cron"
	"punctual/store/overview"
	"punctual/store/runs"
)

func (s *server) overviewRoutes() {
	api.Register(s.api, api.Operation{
		ID: "get-overview", Route: "GET /v1/overview", Role: auth.RoleViewer, Tag: tagOverview, Summary: "Get the overview",
		Errors:    []int{422},
		Responses: map[string]*huma.Response{"304": {Description: "The response has an ETag that If-None-Match names"}},
		Answers: []string{`{"overdue":{"oldest":{"due_at":"2026-12-01T10:59:39.416Z",
			"job_id":"019a3c5e-7d10-7c3e-9a44-0c6d5f0e8b11","job":"daily-invoice-gen"}},
			"last_24h":{"from":"2026-11-30T11:00:00Z","counted_at":"2026-12-01T10:59:02.117Z"}}`},
		Description: "The trouble of the caller's tenant now, and its runs of the last 24 hours. Overdue slots and runs, " +
			"the failing jobs and the open dead letters are read now, each up to a bound. A replica reads them at most once " +
			"a second, for all callers: see as_of. The last 24 hours are counted " +
			"beforehand: the present hour each minute, and each hour again after its end. An hour in which the deployment " +
			"has more than 100,000 runs counts those that end later than a minute after their slot only once it is over; " +
			"until then they are unended. No figure is a sample. Each figure says which list has what it counts; with from " +
			"and to of an hour, that list is the hour's.",
	}, s.getOverview)
	api.Register(s.api, api.Operation{
		ID: "get-job-stats", Route: "GET /v1/jobs/{job}/stats", Role: auth.RoleViewer, Tag: tagOverview,
		Summary: "Get the statistics of a job",
		Past:    true,
		Description: "How its runs of the last 24 hours went, how long they took and how late they were sent. Its newest " +
			"1,000 runs are read at most; the response says how many were read, and back to when.",
	}, s.getJobStats)
	api.Register(s.api, api.Operation{
		ID: "list-usage", Route: "GET /v1/usage", Role: auth.RoleViewer, Tag: tagOverview, Summary: "List usage",
		Errors: []int{422},
		Description: "The use of each job on each day: runs, attempts, seconds and bytes. The newest day first. " +
			"Days are summed beforehand: see counted_at. A tenant's usage of deleted jobs stays. It is kept for 400 days.",
	}, s.listUsage)
}

// Overview is what a first page shows.
type Overview struct {
	overview.Figures
	Frozen   *Frozen  `json:"frozen" doc:"The freeze that stops all claims for this tenant. Null: neither the tenant nor the deployment is frozen."`
	ZoneData ZoneData `json:"zone_data" doc:"The time zone data of the replica that answers."`
}

// ZoneData says how old the time zone data is that slots are computed with.
type ZoneData struct {
	Release     string    `json:"release" doc:"Release of the IANA time zone database." example:"2026f"`
	PublishedAt time.Time `json:"published_at" doc:"When it was published."`
	Old         bool      `json:"old" doc:"It is more than half a year old. Jobs in zones whose rules have changed since fire at wrong times."`
}

// boardAnswer is an overview with its tag.
type boardAnswer struct {
	Status int
	ETag   string `header:"ETag" doc:"Differs between overviews that differ in anything but as_of. For If-None-Match."`
	Body   Overview
}

type overviewInput struct{ IfNoneMatch }

func (s *server) getOverview(ctx context.Context, tenant int32, in *overviewInput) (*boardAnswer, error) {
	figures, err := s.Store.Overview.Shared(ctx, tenant)
	if err != nil {
		return nil, err
	}
	zones := cron.Zones()
	board := Overview{
		Figures: figures, Frozen: s.freezes.of(ctx, tenant, auth.CallerOf(ctx).Role),
		ZoneData: ZoneData{zones.Release, zones.Published, zones.Old(figures.AsOf)},
	}
	untimed := board
	untimed.AsOf = time.Time{}
	text, err := body.Render(untimed)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(text)
	tag := fmt.Sprintf("\"%s\"", hex.EncodeToString(sum[:8]))
	out := &boardAnswer{Status: http.StatusOK, ETag: "W/" + tag, Body: board}
	if in.matches(tag) {
		out.Status = http.StatusNotModified
	}
	return out, nil
}

func (s *server) getJobStats(ctx context.Context, tenant int32, in *JobRef) (*answer[runs.JobStats], error) {
	return show(s.Store.Runs.JobStats(ctx, tenant, in.Job))
}

// mostUsageDays is how many days one request may list.
const mostUsageDays = 100

type listUsageInput struct {
	From string `query:"from" maxLength:"10" format:"date" doc:"The first day, in UTC. Absent: 30 days before to." example:"2026-11-01"`
	To   string `query:"to" maxLength:"10" format:"date" doc:"The day after the last one, at most 100 days after from. Absent: tomorrow." example:"2026-12-01"`
	Paging
}

// bounds returns the first day, and the day after the last.
func (in listUsageInput) bounds() (from, to time.Time, err error) {
	day := func(field, text string, absent time.Time) (time.Time, error) {
		if text == "" {
			return absent, nil
		}
		at, err := time.Parse(time.DateOnly, text)
		if err != nil {
			err = problem.Invalid(problem.At("query."+field, "must be a day such as 2026-12-01"))
		}
		return at, err
	}
	if to, err = day("to", in.To, time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, 1)); err != nil {
		return from, to, err
	}
	if from, err = day("from", in.From, to.AddDate(0, 0, -30)); err != nil {
		return from, to, err
	}
	if from.After(to) || to.After(from.AddDate(0, 0, mostUsageDays)) || from.Year() < 1970 || to.Year() > 2199 {
		err = problem.Invalid(problem.Atf("query.from", "must be 0 to %d days before to, in the years 1970 to 2199",
			mostUsageDays))
	}
	return from, to, err
}

func (s *server) listUsage(
	ctx context.Context, tenant int32, in *listUsageInput,
) (*answer[List[overview.Usage]], error) {
	from, to, err := in.bounds()
	if err != nil {
		return nil, err
	}
	return pageOf(s.Store.Overview.Usage(ctx, tenant, from, to, in.page()))
}
