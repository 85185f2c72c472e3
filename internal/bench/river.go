package bench

import (
	"context"
	"fmt"
	"time"

	"punctual/internal/process"
)

// riverWorkers is the number of River's workers.
const riverWorkers = 256

// river measures the burst with River, run by a program: PROGRAM --database-url=… --target=… --jobs=N --workers=N.
// The program inserts N jobs, each of which posts the burst's body to the target. When all are inserted, it starts the
// workers. Its last line of output is {"seconds":…,"cpu":…}: the time from starting the workers to the end of the
// last job, and the program's own processor time, both in seconds. Its tables are in a schema of its own, which it
// drops when it is asked to stop.
func (l *lab) river(ctx context.Context, to *target, path string) (result bareResult, err error) {
	p, err := process.Launch(l.River, nil, "--database-url="+l.db.dsn, "--target="+to.url(path),
		fmt.Sprintf("--jobs=%d", l.Sizes.BurstJobs), fmt.Sprintf("--workers=%d", riverWorkers))
	if err != nil {
		return result, err
	}
	l.processes = append(l.processes, p)
	defer func() { // it still runs here only if ctx has ended
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		_ = p.Stop(ctx)
	}()
	return l.timed(ctx, p.Wait, p.Output, to, path)
}
