//prove:alerts

package prove

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"punctual/internal/docs"
	"punctual/internal/pgtest"
	"punctual/internal/privatepg"
	"punctual/internal/process"
)

// sooner is how much shorter each duration of the rules is here: how long a condition must hold, and how far back a
// rule looks. Numbers stay as they are, such as the seconds that work may wait.
const sooner = 60

// anywhere are the rules that any scene may fire: on a busy machine, and by the transactions of other tests, which run
// in other databases of the same server.
var anywhere = []string{"PunctualClaimsSlow", "PunctualSnapshotOld"}

var duration = regexp.MustCompile(`\b\d+[smhd]\b`)

// rulesSooner returns docs/deploy/rules.yml, with shorter durations.
func rulesSooner(t *testing.T) string {
	t.Helper()
	return duration.ReplaceAllStringFunc(docs.Read(t, "docs/deploy/rules.yml"), func(d string) string {
		long, err := time.ParseDuration(d)
		must(t, err)
		return fmt.Sprint((long / sooner).Milliseconds(), "ms")
	})
}

// Real replicas meet the faults below, under a real Prometheus. Each fires its rules and no others, and then all end.
//
// Before it, with healthy replicas, no rule fires. Each duration of the rules is a sixtieth here: how long a condition
// holds, and how far back a rule looks.
func TestEachAlarmFiresByItsFault(t *testing.T) {
	for _, scene := range scenes {
		t.Run(scene.name, func(t *testing.T) {
			t.Parallel()
			s := &site{T: t, w: newWitness(t)}
			scene.starts(s)
			s.p = newPrometheus(t, s.fleet...)
			s.p.evaluate(rulesSooner(t))
			pass(t, 12*time.Second) // longer than most alarms must hold
			if s.p.found(`count_over_time(ALERTS{alertstate="firing",alertname!~"`+strings.Join(anywhere, "|")+`"}[1h])`) > 0 {
				t.Fatalf("healthy replicas fire, such as %q", s.p.firing())
			}
			expected := slices.Concat(scene.also, anywhere)
			var ends []func()
			for _, f := range scene.faults {
				expected = append(expected, f.fires...)
				ends = append(ends, f.begin(s))
			}
			fired := map[string]time.Time{}
			began := time.Now()
			for _, f := range scene.faults {
				for _, rule := range f.fires {
					await(t, rule+" to fire by: "+f.fault, func() bool {
						for _, name := range s.p.firing() {
							if fired[name].IsZero() {
								fired[name] = time.Now()
								t.Logf("%s fires after %s", name, time.Since(began).Round(time.Second))
							}
							if !slices.Contains(expected, name) {
								t.Fatalf("%s fires too", name)
							}
						}
						return !fired[rule].IsZero()
					})
				}
			}
			for _, end := range slices.Backward(ends) {
				end()
			}
			ended := time.Now()
			await(t, "all alarms to end", func() bool {
				return len(slices.DeleteFunc(s.p.firing(), func(name string) bool { return slices.Contains(anywhere, name) })) == 0
			})
			t.Logf("all end after %s", time.Since(ended).Round(time.Second))
			stop(t, s.fleet...)
		})
	}
}

// Each rule of docs/deploy/rules.yml has its fault.
//
//prove:other
func TestEachAlarmHasItsFault(t *testing.T) {
	t.Parallel()
	var fired, rules []string
	for _, scene := range scenes {
		for _, f := range scene.faults {
			fired = append(fired, f.fires...)
		}
	}
	text := docs.Read(t, "docs/deploy/rules.yml")
	for _, rule := range regexp.MustCompile(`- alert: (\w+)`).FindAllStringSubmatch(text, -1) {
		rules = append(rules, rule[1])
	}
	slices.Sort(fired)
	if slices.Sort(rules); !slices.Equal(fired, rules) {
		t.Errorf("the rules are %q, and faults fire %q", rules, fired)
	}
}

// site is a deployment that Prometheus watches.
type site struct {
	*testing.T
	dsn   string
	w     *Witness
	p     *prometheus
	fleet []*process.Replica // those that are scraped

	// What some scenes have besides.
	proxy  *pgtest.Proxy // to the database
	clock  *pgtest.Clock // of the database
	server *privatepg.Server
	claim  *oneClaim
}

// join starts a replica that is scraped, at the latest when Prometheus has started.
func (s *site) join(flags ...string) *process.Replica {
	s.Helper()
	return s.watch(serve(s, s.dsn, flags...))
}

func (s *site) watch(r *process.Replica) *process.Replica {
	s.Helper()
	s.fleet = append(s.fleet, r)
	if s.p != nil {
		s.p.scrape(s.fleet...)
	}
	return r
}

// leave takes a replica out of service.
func (s *site) leave(r *process.Replica) {
	s.Helper()
	s.fleet = slices.DeleteFunc(s.fleet, func(one *process.Replica) bool { return one == r })
	s.p.scrape(s.fleet...)
	if !r.Ended() {
		stop(s, r)
	}
}

// create creates jobs, and triggers those that have no schedule.
func (s *site) create(jobs ...process.JobSpec) {
	s.Helper()
	create(s, s.fleet[0].API, jobs...)
	for _, j := range jobs {
		if j["schedule"] == nil {
			trigger(s, s.fleet[0].API, j["name"].(string))
		}
	}
}

// call calls the API of the first replica.
func (s *site) call(method, path string, in any) {
	s.Helper()
	_, err := s.fleet[0].API.Do(s.Context(), method, path, in, nil)
	must(s, err)
}
