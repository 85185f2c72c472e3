package claim_test

import (
	"fmt"
	"strings"
	"testing"

	. "punctual/internal/storetest"
	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/store/jobs"
)

// A hundred runs with the largest bodies would be 25 MB in one claim, whether each has its own or one event has caused
// them all.
func TestAClaimIsBoundedByTheBytesOfItsBodies(t *testing.T) {
	t.Parallel()
	const large, runs, most = 250 << 10, 60, 4 * mebibyte
	body := `{"x":"` + strings.Repeat("x", large) + `"}`
	for name, make := range map[string]func(c Replica){
		"bodies of their own": func(c Replica) {
			c.Create("job", Never, func(d *jobspec.Definition) { d.ConcurrencyPolicy = jobspec.PolicyAllow })
			for range runs {
				_, err := c.For(c.Tenant).TriggerJob(t.Context(), "job", jobs.TriggerRequest{Body: []byte(body)})
				c.Must(err)
			}
		},
		"the body of an event": func(c Replica) {
			for i := range runs {
				c.Create(fmt.Sprint("job", i), On("large", ""))
			}
			c.Emit("large", body)
			c.FanOut()
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := NewReplica(t)
			make(c)
			sent := claimUntil(c, runs, func() (domain.Batch, error) { // a slow machine claims less at once
				batch, read := c.ClaimWaiting(domain.WorkReady, 100), 0
				for _, a := range batch.Runs {
					if c.SentBody(a) != body {
						t.Fatalf("a run is sent %.60q", c.SentBody(a))
					}
					read += len(a.Body) + len(a.EventBody)
				}
				if read > most {
					t.Errorf("a claim of %d runs reads %d bytes", len(batch.Runs), read)
				}
				return batch, nil
			})
			if len(sent) != runs {
				t.Errorf("%d runs are claimed", len(sent))
			}
			c.WantCount(0, "runs wait", `SELECT count(*) FROM punctual.ready`)
		})
	}
}
