package notices

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/scheduler/notice"
)

// failingJobs are rows of jobs that are failing, each for a reason of its own.
func failingJobs(n int) (rows []*state) {
	for range n {
		digest := domain.Digest{
			Job: strings.Repeat("x", 250), JobID: uuid.New(),
			Events: []domain.DigestEvent{{Event: jobspec.EventFailing, Runs: []domain.DigestRun{{ID: uuid.New()}}}},
		}
		rows = append(rows, &state{
			job: digest.JobID, key: digest.JobID.String(), unsent: &digest, base: digest, dirty: true, troubled: true,
		})
	}
	return rows
}

// A message that would name too many jobs leaves some to the next one.
func TestAMessageNamesAsManyJobsAsFit(t *testing.T) {
	l := recipient{now: time.Now(), Outgoing: notice.Outgoing{To: jobspec.Recipient{Format: jobspec.FormatSlack}}}
	rows := failingJobs(500)
	said := l.plan(rows, world{})
	left := slices.DeleteFunc(rows, func(r *state) bool { return r.fate == included })
	if len(said)+len(left) != 500 || len(said)*250 > mostNames || len(said) < 300 || l.lookAt == nil {
		t.Errorf("told of %d jobs, %d are left, looked at again %v", len(said), len(left), l.lookAt)
	}
}

// The runs are described of the first jobs of a message only.
func TestAMessageAboutManyJobsIsBrief(t *testing.T) {
	rows := failingJobs(30)
	var subjects []notice.Subject
	for _, r := range rows {
		subjects = append(subjects, notice.AboutJob(r.base).Subjects...)
	}
	brief(subjects)
	described := 0
	for _, s := range subjects {
		described += len(s.Jobs[0].Events[0].Runs)
	}
	if described != 20 || len(rows[29].base.Events[0].Runs) != 1 {
		t.Errorf("%d runs are described; of the last job are kept %v", described, rows[29].base.Events[0].Runs)
	}
}

// A queue is served again, and what it held up is told. Its end is told when nothing more has come for five minutes.
func TestACauseThatIsOverIsLookedAtUntilItsEndIsTold(t *testing.T) {
	const key = "queue:shop:reports"
	now := time.Now()
	l := recipient{
		now: now, causes: map[string]cause{key: {Since: now.Add(-time.Hour), Newest: now.Add(-6 * time.Minute)}},
		Outgoing: notice.Outgoing{To: jobspec.Recipient{Format: jobspec.FormatSlack}},
	}
	digest := domain.Digest{Job: "job", Events: []domain.DigestEvent{{Event: jobspec.EventLate, FirstAt: now, LastAt: now}}}
	said := l.plan([]*state{{job: uuid.New(), key: key, unsent: &digest, base: digest, dirty: true}}, world{})
	if len(said) != 1 || said[0].State != notice.StatePassing || l.lookAt == nil || l.lookAt.Before(now.Add(time.Minute)) {
		t.Errorf("told %+v, looked at again %v", said, l.lookAt)
	}
}
