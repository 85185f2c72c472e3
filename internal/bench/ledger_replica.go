package bench

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/google/pprof/profile"

	"punctual/internal/command"
	"punctual/internal/process"
)

// profileEnv names the file to which a profiled replica writes its profile; what it has allocated goes beside it.
const profileEnv = "PUNCTUAL_BENCH_PROFILE"

// profileHertz is how many samples of a second of processor time a profile has: five times as many as Go's default, as
// a burst is short.
const profileHertz = 500

// profiledReplica is a replica of this program's own code that measures itself between two signals.
type profiledReplica struct {
	*process.Replica
	file string
}

// function is a function of Punctual, or of the runtime, and the processor time of what it has called outside Punctual.
type function struct {
	name   string
	micros float64
}

// profiled starts a replica that can be profiled.
func (l *lab) profiled(ctx context.Context, flags ...string) *profiledReplica {
	itself, err := os.Executable()
	l.must(err)
	dir, err := os.MkdirTemp("", "punctual-ledger-")
	l.must(err)
	context.AfterFunc(ctx, func() { _ = os.RemoveAll(dir) }) // the benchmark is over
	binary := l.Binary
	defer func() { l.Binary = binary }()
	l.Binary = itself
	file := filepath.Join(dir, "profile")
	return &profiledReplica{l.serveWith(ctx, []string{profileEnv + "=" + file}, flags...), file}
}

// serveProfiled is `punctual serve`: SIGUSR1 starts a profile, and the next one ends it.
func serveProfiled(args []string) (status int) {
	toggle := make(chan os.Signal, 1)
	signal.Notify(toggle, syscall.SIGUSR1)
	go func() {
		for range toggle {
			var taken bytes.Buffer
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			runtime.SetCPUProfileRate(profileHertz) // StartCPUProfile says that it cannot set another rate, and goes on
			if err := pprof.StartCPUProfile(&taken); err != nil {
				fmt.Fprintln(os.Stderr, "bench:", err)
			}
			<-toggle
			pprof.StopCPUProfile()
			runtime.ReadMemStats(&after)
			stats, _ := json.Marshal([2]uint64{after.Mallocs - before.Mallocs, after.TotalAlloc - before.TotalAlloc})
			_ = os.WriteFile(os.Getenv(profileEnv)+".alloc", stats, 0o600)
			_ = os.WriteFile(os.Getenv(profileEnv)+".part", taken.Bytes(), 0o600)
			_ = os.Rename(os.Getenv(profileEnv)+".part", os.Getenv(profileEnv))
		}
	}()
	return command.Main(args, "bench", nil)
}

// measure measures work on the replica. The work returns what it has seen itself, and of how many pieces it was.
func (r *profiledReplica) measure(ctx context.Context, l *lab, work func() (burst, int)) (of costs) {
	_ = os.Remove(r.file)
	l.exec(ctx, `SELECT ledger.pg_stat_statements_reset()`)
	l.must(r.Signal(syscall.SIGUSR1))
	var n int
	of.burst, n = work()
	l.must(r.Signal(syscall.SIGUSR1))
	of.statements = l.statements(ctx)
	l.must(await(ctx, "the profile of the replica", 5*time.Millisecond, func() (bool, error) {
		_, err := os.Stat(r.file)
		return err == nil, nil
	}))
	raw, err := os.ReadFile(r.file)
	l.must(err)
	taken, err := profile.ParseData(raw)
	l.must(err)
	of.functions = byFunction(taken)
	stats, err := os.ReadFile(r.file + ".alloc")
	l.must(err)
	var sums [2]float64
	l.must(json.Unmarshal(stats, &sums))
	of.allocated = allocations{sums[0], sums[1]}
	return of.each(n)
}

// byFunction gives each sample to the innermost function of Punctual on its stack, the dearest first. Samples without
// one are the runtime's, by what it does.
func byFunction(p *profile.Profile) (all []function) {
	sums := map[string]float64{}
	for _, s := range p.Sample {
		sums[ownerOf(s)] += float64(s.Value[len(s.Value)-1]) / 1e3
	}
	for _, name := range slices.Collect(maps.Keys(sums)) {
		all = append(all, function{name, sums[name]})
	}
	slices.SortFunc(all, func(a, b function) int { return cmp.Compare(b.micros, a.micros) })
	return all
}

func ownerOf(s *profile.Sample) string {
	outer := "runtime"
	for _, at := range s.Location {
		for _, line := range at.Line {
			name := line.Function.Name
			if strings.HasPrefix(name, "punctual/") {
				return strings.TrimPrefix(name, "punctual/")
			}
			switch {
			case strings.Contains(name, "gcBgMarkWorker"), strings.Contains(name, "bgsweep"),
				strings.Contains(name, "bgscavenge"):
				outer = "runtime: garbage collection"
			case strings.HasSuffix(name, "runtime.mcall"), strings.HasSuffix(name, "runtime.schedule"):
				outer = "runtime: scheduling"
			case !strings.HasPrefix(name, "runtime"):
				outer = name
			}
		}
	}
	return outer
}
