package trace

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	sdk "go.opentelemetry.io/otel/sdk/trace"

	"punctual/scheduler/domain"
)

const (
	waiting  = 4096        // ends of attempts and runs that may wait
	most     = 512         // of which spans are made at a time
	gather   = time.Second // how long they gather
	patience = 15 * time.Second
	// lastPatience bounds what a stop waits for the collector, which is little beside the drain.
	lastPatience = time.Second
)

// Config says what a Tracer exports, and where to.
type Config struct {
	Origin   domain.Origin
	Version  string
	Host     string
	Exporter sdk.SpanExporter
	Log      *slog.Logger
	Registry prometheus.Registerer
}

// Runs are where a Tracer reads runs that have ended.
type Runs interface {
	// Ended returns those of some runs that have ended otherwise than as skipped.
	Ended(ctx context.Context, runs []uuid.UUID) ([]Run, error)
}

// Run is a run that has ended.
type Run struct {
	ID         uuid.UUID
	Fence      int64 // of its last attempt; 0: it had none
	Job        string
	Tenant     string
	Step       string
	Trigger    domain.Trigger
	Status     domain.Status
	Reason     domain.Reason
	Error      string
	Attempts   int
	DueAt      time.Time
	CreatedAt  time.Time
	FinishedAt time.Time

	TraceParent string // the trace context that it continues
	Links       []Link // to what it came from
}

// Link is a trace that led to a run: that of another run, or a trace context that a caller gave.
type Link struct {
	Run         uuid.UUID
	TraceParent string // the trace context that Run continues. Without a Run, the link itself
}

// Tracer makes spans of attempts and runs that have ended, and exports them. All methods of a nil *Tracer do nothing.
// Safe for concurrent use.
type Tracer struct {
	config  Config
	maker   *maker
	queue   chan end
	stop    context.Context
	halt    context.CancelFunc
	stopped chan struct{}
	spans   *prometheus.CounterVec
	failing bool
}

// end is the end of an attempt, and perhaps of its run; or, without an outcome, perhaps of a run.
type end struct {
	run     uuid.UUID
	outcome *domain.Outcome
}

// New returns a Tracer. It exports once it is started.
func New(c Config) *Tracer {
	t := &Tracer{
		config: c, maker: newMaker(c), queue: make(chan end, waiting), stopped: make(chan struct{}),
		spans: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "punctual_spans_total",
			Help: "Spans by result: exported, refused (the collector did not take them), dropped (too many waited for it).",
		}, []string{"result"}),
	}
	t.stop, t.halt = context.WithCancel(context.Background())
	c.Registry.MustRegister(t.spans)
	for _, result := range []string{"exported", "refused", "dropped"} {
		t.spans.WithLabelValues(result)
	}
	return t
}

// Follows reports whether the spans of a run are exported.
func (t *Tracer) Follows(a *domain.Assignment) bool {
	return t != nil && t.config.Origin.Trace(a.RunID, a.TraceParent).Sampled
}

// Ended is told of the outcomes of attempts. Written are the runs whose outcomes count: others were superseded. It does
// not keep the slice.
func (t *Tracer) Ended(outcomes []domain.Outcome, written map[uuid.UUID]bool) {
	if t == nil {
		return
	}
	for i := range outcomes {
		if o := &outcomes[i]; written[o.RunID] && t.Follows(&o.Assignment) {
			kept := *o
			kept.Response, kept.Result, kept.Body, kept.EventBody = "", nil, nil, nil // many may wait
			t.put(end{o.RunID, &kept})
		}
	}
}

// Over is told of runs that may have ended without an attempt.
func (t *Tracer) Over(runs ...uuid.UUID) {
	if t == nil {
		return
	}
	for _, id := range runs {
		t.put(end{run: id})
	}
}

func (t *Tracer) put(e end) {
	select {
	case t.queue <- e:
	default:
		t.count("dropped", 1)
	}
}

func (t *Tracer) count(result string, n int) { t.spans.WithLabelValues(result).Add(float64(n)) }

// Start begins to export. Stop exports what waits, and returns after little more than a second.
func (t *Tracer) Start(runs Runs) (stop func()) {
	if t == nil {
		return func() {}
	}
	go t.run(runs)
	return func() {
		t.halt()
		<-t.stopped
	}
}

func (t *Tracer) run(runs Runs) {
	defer close(t.stopped)
	work, giveUp := context.WithCancel(context.Background())
	defer giveUp()
	defer context.AfterFunc(t.stop, func() { time.AfterFunc(lastPatience, giveUp) })()
	for {
		ends := t.collect()
		if len(ends) == 0 {
			break
		}
		t.export(work, runs, ends)
	}
	if err := t.config.Exporter.Shutdown(work); err != nil && t.stop.Err() == nil {
		t.config.Log.Warn("the exporter of spans could not be stopped", "error", err)
	}
}

// collect returns the next ends; none when the tracer has stopped and none waits.
func (t *Tracer) collect() (ends []end) {
	var over <-chan time.Time
	for len(ends) < most {
		select {
		case e := <-t.queue:
			if ends = append(ends, e); len(ends) == 1 {
				over = time.After(gather)
			}
		case <-over:
			return ends
		case <-t.stop.Done():
			return append(ends, t.left(most-len(ends))...)
		}
	}
	return ends
}

// left takes what is in the queue.
func (t *Tracer) left(most int) (ends []end) {
	for len(ends) < most {
		select {
		case e := <-t.queue:
			ends = append(ends, e)
		default:
			return ends
		}
	}
	return ends
}

// export makes spans and exports them.
func (t *Tracer) export(ctx context.Context, runs Runs, ends []end) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	ended, err := runs.Ended(ctx, notRunning(ends))
	if err != nil {
		t.failed(fmt.Errorf("reading the runs: %w", err), len(ends))
	}
	spans := t.maker.spans(ends, ended)
	if len(spans) == 0 {
		return
	}
	if err := t.config.Exporter.ExportSpans(ctx, spans); err != nil {
		t.failed(err, len(spans))
		return
	}
	if t.failing {
		t.config.Log.Info("spans can be exported again")
	}
	t.failing = false
	t.count("exported", len(spans))
}

// failed says once in the log that spans are lost, and counts them.
func (t *Tracer) failed(err error, lost int) {
	if !t.failing {
		t.config.Log.Warn("spans cannot be exported, and are lost until they can", "error", err)
	}
	t.failing = true
	t.count("refused", lost)
}

// notRunning are the runs that may have ended, each once.
func notRunning(ends []end) []uuid.UUID {
	ids, seen := make([]uuid.UUID, 0, len(ends)), make(map[uuid.UUID]bool, len(ends))
	for _, e := range ends {
		if e.outcome != nil && e.outcome.Verdict == domain.Await || seen[e.run] {
			continue
		}
		ids, seen[e.run] = append(ids, e.run), true
	}
	return ids
}
