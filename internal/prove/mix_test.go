//prove:other

package prove

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"punctual/internal/process"
)

// mix is a load of everything: every policy with prompt and with slow targets, both kinds of delivery, completion
// async, targets that fail now and then, and one-shots.
type mix struct {
	start   time.Time // the first slot, a whole second
	seconds int       // how long its jobs fire
	copies  int       // of each job
}

// The paths of the mix, one for each behaviour of its targets.
const (
	promptPath = "/prompt"
	slowPath   = "/slow"
	flakyPath  = "/flaky"
	longPath   = "/long"
)

// slowFor is how long a slow target of the mix takes: longer than the period of its jobs.
const slowFor = 1500 * time.Millisecond

func scriptMix(w *Witness) {
	w.Script(slowPath, Answer{Delay: slowFor})
	w.Cycle(flakyPath, Answer{}, Answer{Status: 503}, Answer{}, Answer{Drop: true})
	w.Script(longPath, Answer{Status: http.StatusAccepted})
}

// everySecond returns the fields of a job that fires every second of the mix.
func (m mix) everySecond() process.JobSpec {
	return process.JobSpec{
		"schedule": everyUntil("1s", m.start, m.end()),
		"retry":    map[string]any{"max_attempts": 6, "initial_backoff": "200ms", "multiplier": 1, "max_backoff": "1s"},
		"missed":   map[string]any{"policy": "fire_all"},
	}
}

func (m mix) jobs(url string) (jobs []process.JobSpec) {
	for i := range m.copies {
		add := func(name, path string, more process.JobSpec) {
			spec := job(fmt.Sprint(name, "-", i), url+path, m.everySecond())
			maps.Copy(spec, more)
			jobs = append(jobs, spec)
		}
		for _, policy := range []string{"allow", "forbid", "replace", "wait"} {
			add("prompt-"+policy, promptPath, process.JobSpec{"concurrency_policy": policy})
			add("slow-"+policy, slowPath, process.JobSpec{
				"concurrency_policy": policy,
				"missed":             map[string]any{"policy": "fire_all", "window": "60s"}, // it cannot make up for more
			})
			add("flaky-"+policy, flakyPath, process.JobSpec{"concurrency_policy": policy})
			add("long-"+policy, longPath, process.JobSpec{
				"concurrency_policy": policy,
				"completion":         "async",
				"heartbeat_timeout":  "20s",
			})
		}
		for _, policy := range []string{"allow", "forbid"} {
			add("once-"+policy, promptPath, process.JobSpec{"concurrency_policy": policy, "delivery": "at_most_once"})
			add("flaky-once-"+policy, flakyPath, process.JobSpec{"concurrency_policy": policy, "delivery": "at_most_once"})
		}
		// Its steps are a mix of their own. They leave a workflow time to end before the next begins.
		every4 := m.everySecond()
		every4["schedule"] = everyUntil("4s", m.start, m.end())
		flow := diamond(fmt.Sprint("workflow-", i), url, every4)
		for n, path := range []string{promptPath, flakyPath, slowPath, promptPath, flakyPath} {
			flow["steps"].([]any)[n].(map[string]any)["target"] = map[string]any{"url": url + path}
		}
		jobs = append(jobs, flow)
		for s := range m.seconds {
			due := m.start.Add(time.Duration(s)*time.Second + 370*time.Millisecond)
			add(fmt.Sprint("shot-", s), promptPath, process.JobSpec{
				"schedule": oneShot(due),
			})
		}
	}
	return jobs
}

// approved returns workflows with a step that waits for approval. Who meddles decides about some in time.
func (m mix) approved(url string) (jobs []process.JobSpec) {
	for i := range m.copies {
		every4 := m.everySecond()
		every4["schedule"] = everyUntil("4s", m.start, m.end())
		flow := diamond(fmt.Sprint("approved-", i), url, every4)
		step := flow["steps"].([]any)[1].(map[string]any)
		delete(step, "target")
		step["approval"] = map[string]any{"expires_after": "3s"}
		jobs = append(jobs, flow)
	}
	return jobs
}

// sharedLimit is a limit of one run at once.
const sharedLimit = "shared"

// limited returns jobs that share sharedLimit. They leave it time for what faults delay.
func (m mix) limited(url string) (jobs []process.JobSpec) {
	for i, path := range []string{promptPath, flakyPath, promptPath} {
		spec := job(fmt.Sprint("limited-", i), url+path, m.everySecond())
		spec["schedule"], spec["limits"] = everyUntil("4s", m.start, m.end()), []string{sharedLimit}
		jobs = append(jobs, spec)
	}
	return jobs
}

// end returns the last slot.
func (m mix) end() time.Time { return m.start.Add(time.Duration(m.seconds-1) * time.Second) }

// mixed returns a mix that begins in a moment.
func mixed(seconds int) mix { return mix{start: nextSecond(time.Second), seconds: seconds, copies: 1} }

// work does the work of the jobs with completion async. It completes each attempt through any replica that answers,
// until one has accepted that or said that the attempt is over. replicas returns the living replicas. The work ends
// with the test.
func work(t testing.TB, w *Witness, replicas func() []*process.Replica) {
	ctx, stop := context.WithCancel(t.Context())
	var working sync.WaitGroup
	working.Go(func() {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for done := 0; ; {
			asked := w.At(longPath)
			for _, q := range asked[done:] {
				working.Go(func() { completeWork(ctx, q, replicas) })
			}
			done = len(asked)
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	})
	t.Cleanup(func() { stop(); working.Wait() })
}

func completeWork(ctx context.Context, q Request, replicas func() []*process.Replica) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case <-tick.C: // the time that the work takes
		case <-ctx.Done():
			return
		}
		fleet := replicas()
		if len(fleet) == 0 {
			continue
		}
		status, err := fleet[i%len(fleet)].API.WithHeader("Punctual-Run-Token", q.Token).Do(ctx, http.MethodPost,
			"/v1/runs/"+q.Run.String()+"/complete", nil, nil)
		if err == nil || status/100 == 4 {
			return
		}
	}
}

// The load of the soaks has each kind of job.
func TestTheMixIsWhatItSays(t *testing.T) {
	t.Parallel()
	kinds := map[string]bool{}
	for _, j := range (mix{start: nextSecond(0), seconds: 3, copies: 2}).jobs("http://x") {
		name := j["name"].(string)
		kinds[name[:strings.LastIndexByte(name, '-')]] = true
	}
	if len(kinds) != 4*4+2*2+1+3 {
		t.Errorf("%d kinds of jobs: %v", len(kinds), kinds)
	}
}
