package store

import "time"

// What tests of the store see of it: they are of another package, because their fixture imports this one.
const (
	FurtherRuns    = furtherRuns
	JobMetricsAge  = jobMetricsAge
	NewestRuns     = newestRuns
	SelectMeasured = selectMeasured
)

// SelectNewest is selectNewest, and ChoresDue choresDue.
var (
	SelectNewest = selectNewest
	ChoresDue    = choresDue
)

// Age makes the collector's last answer too old to be given again.
func (m *JobMetrics) Age() {
	m.mu.Lock()
	m.read = time.Time{}
	m.mu.Unlock()
}
