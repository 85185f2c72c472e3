package notices_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	. "punctual/internal/storetest"
	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/scheduler/notice"
)

// incidents models what a recipient holds for open: PagerDuty by dedup_key, Alertmanager by labels.
type incidents map[string]bool

// take applies a message to the model.
func (i incidents) take(t *testing.T, m notice.Outgoing) {
	t.Helper()
	if m.To.Format == jobspec.FormatPagerDuty {
		var e struct {
			Action string `json:"event_action"`
			Key    string `json:"dedup_key"`
		}
		Must(t, json.Unmarshal(m.Body, &e))
		i[e.Key] = e.Action == "trigger"
		return
	}
	var alerts []struct {
		Labels map[string]string `json:"labels"`
		EndsAt time.Time         `json:"endsAt"`
	}
	Must(t, json.Unmarshal(m.Body, &alerts))
	for _, a := range alerts {
		i[fmt.Sprint(a.Labels)] = time.Until(a.EndsAt) > time.Hour
	}
}

func (i incidents) open() (keys []string) {
	for key, open := range i {
		if open {
			keys = append(keys, key)
		}
	}
	return keys
}

const pagerURL, alertsURL = "https://pager.example/", "https://alerts.example/api/v2/alerts"

// statefully makes a job tell PagerDuty and Alertmanager of its health.
func statefully(d *jobspec.Definition) {
	for format, url := range map[jobspec.Format]string{
		jobspec.FormatPagerDuty: pagerURL, jobspec.FormatAlertmanager: alertsURL,
	} {
		d.Notify = append(d.Notify, jobspec.Notify{
			On:     []jobspec.Event{jobspec.EventFailing, jobspec.EventDead, jobspec.EventRecovered, jobspec.EventLate},
			Format: format, URL: url, Secret: map[jobspec.Format]string{jobspec.FormatPagerDuty: "key"}[format],
		})
	}
}

// pager makes a job tell PagerDuty of its health.
func pager(d *jobspec.Definition) {
	statefully(d)
	d.Notify = slices.DeleteFunc(d.Notify, func(n jobspec.Notify) bool { return n.Format != jobspec.FormatPagerDuty })
}

// The last word of a recipient is the truth for each job, whatever happens to messages on their way: refusals, lost
// answers, replicas that are killed, and replicas that stood still and send when others have sent later messages.
func TestTheLastWordIsTheTruth(t *testing.T) {
	t.Parallel()
	seeds, most := []uint64{1, 2, 3}, 170 // a thousand with those of all seeds and both recipients
	if testing.Short() {
		seeds, most = seeds[:1], 20
	}
	for _, seed := range seeds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			c := NewReplica(t)
			c.Secret("key", "routing")
			random := rand.New(rand.NewPCG(seed, 7))
			world := map[string]incidents{pagerURL: {}, alertsURL: {}}
			well := map[string]bool{}
			const jobs = 14
			for n := range jobs {
				c.Create(fmt.Sprint("job-", n), Never, statefully)
				well[fmt.Sprint("job-", n)] = true
			}
			var standing []notice.Outgoing // with replicas that stand still
			arrives := func(m notice.Outgoing, a notice.Answer) {
				if a.Arrival == notice.Delivered || a.Arrival == notice.Unknown && random.IntN(2) == 0 {
					world[m.To.URL].take(t, m)
				}
				Must(t, c.Notices.Answered(t.Context(), m, a))
			}
			send := func(faults bool) bool {
				m := c.ClaimNotice()
				if m == nil {
					return false
				}
				fate := random.IntN(9)
				if !faults {
					fate = 8
				}
				switch fate {
				case 0:
					arrives(*m, notice.Answer{Arrival: notice.PutOff, RetryAfter: time.Minute, Status: 429})
				case 1:
					arrives(*m, notice.Answer{Arrival: notice.Unsent, Status: 404})
				case 2, 3:
					arrives(*m, notice.Answer{Arrival: notice.Unknown, Status: 500})
				case 4: // the replica is killed after it has sent
					world[m.To.URL].take(t, *m)
				case 5: // the replica is killed before
				case 6:
					standing = append(standing, *m)
				default:
					arrives(*m, notice.Answer{Arrival: notice.Delivered})
				}
				return true
			}
			tell := func() { c.Later(); c.Tell() }
			opened := 0
			for opened < most {
				name := fmt.Sprint("job-", random.IntN(jobs))
				if random.IntN(25) == 0 { // many jobs at once
					for n := range jobs {
						c.Dies(fmt.Sprint("job-", n))
						opened += map[bool]int{true: 1}[well[fmt.Sprint("job-", n)]]
						well[fmt.Sprint("job-", n)] = false
					}
				} else if was := well[name]; random.IntN(2) == 0 {
					well[name] = true
					c.WellAgain(name)
				} else {
					well[name] = false
					opened += map[bool]int{true: 1}[was]
					o := Buried(c.Begun(name))
					if random.IntN(3) == 0 {
						o.Reason, o.HTTPStatus, o.Error = domain.ReasonConnect, 0, "connection refused"
					}
					c.Finish(o)
				}
				if random.IntN(8) == 0 {
					c.Limited(random.IntN(2) == 0)
					runsLate(c.Fixture, name)
				}
				if random.IntN(3) > 0 {
					tell()
				}
				for range random.IntN(3) {
					send(true)
				}
				if len(standing) > 0 && random.IntN(4) == 0 {
					m := standing[0]
					standing = standing[1:]
					arrives(m, notice.Answer{Arrival: notice.Delivered})
				}
			}
			for _, m := range standing {
				arrives(m, notice.Answer{Arrival: notice.Delivered})
			}
			tell()
			for send(false) {
			}
			c.Limited(false)
			for range 3 {
				tell()
				for send(false) {
				}
			}
			wantTruth(c.Fixture, world, well)
			for name := range well {
				c.WellAgain(name)
			}
			for range 2 {
				tell()
				for send(false) {
				}
			}
			for url, held := range world {
				if open := held.open(); len(open) > 0 {
					t.Errorf("%s holds %q for open when all jobs are well", url, open)
				}
			}
			c.WantCount(0, "rows are left for jobs that are well", `SELECT count(*) FROM punctual.notice_states`)
		})
	}
}

// wantTruth fails the test unless each recipient holds for open exactly the incidents of the jobs that are not well.
func wantTruth(c Fixture, world map[string]incidents, well map[string]bool) {
	c.T.Helper()
	rows, err := c.DB.Callers.Query(c.T.Context(), `
		SELECT j.name, l.url, s.key FROM punctual.notice_states s
		JOIN punctual.outbox l ON l.id = s.recipient_id
		JOIN punctual.jobs j ON j.id = s.job_id`)
	Must(c.T, err)
	keys := map[[2]string]string{}
	for rows.Next() {
		var job, url, key string
		Must(c.T, rows.Scan(&job, &url, &key))
		keys[[2]string{job, url}] = key
	}
	Must(c.T, rows.Err())
	for name, isWell := range well {
		for url, held := range world {
			key, there := keys[[2]string{name, url}]
			if isWell {
				continue // those that are open are compared below, and in the end none may be
			}
			if key == "over" {
				continue // its host can be reached again
			}
			if !there {
				c.T.Errorf("%s is not well, and %s was not told", name, url)
				continue
			}
			if !slices.ContainsFunc(held.open(), func(open string) bool {
				return url == pagerURL && open == "punctual:"+key ||
					url == alertsURL && (strings.Contains(open, "job:"+name+" ") ||
						strings.HasPrefix(key, "host:") && strings.Contains(open, "HostUnreachable"))
			}) {
				c.T.Errorf("%s is not well, and %s does not hold %q for open but %q", name, url, key, held.open())
			}
		}
	}
	for url, held := range world { // and nothing else is open
		for _, open := range held.open() {
			if !slices.ContainsFunc(slices.Collect(maps.Keys(well)), func(name string) bool {
				key := keys[[2]string{name, url}]
				return !well[name] && key != "" && (open == "punctual:"+key || strings.Contains(open, "job:"+name+" ") ||
					strings.HasPrefix(key, "host:") && strings.Contains(open, "HostUnreachable"))
			}) {
				c.T.Errorf("%s holds %s for open, and no job is behind it", url, open)
			}
		}
	}
}
