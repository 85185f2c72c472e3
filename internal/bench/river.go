package bench

import (
	"context"
	"fmt"
	"time"

	"punctual/internal/process"
)

// riverWorkers is how many jobs River works at a time.
const riverWorkers = 256

// river lets a program work the burst with River: PROGRAM --database-url=… --target=… --jobs=N --workers=N. It is to
// insert that many jobs, each of which posts the burst's body to the target, start to work them when all are there, and
// write {"seconds":…,"cpu":…} as its last line: from the start to the last job's end, and the seconds of its own
// processor time. Its tables are in a schema of its own, and it takes them with it when it is asked to stop.
func (l *lab) river(ctx context.Context, to *target, path string) (result bareResult, err error) {
	p, err := process.Launch(l.River, nil, "--database-url="+l.db.dsn, "--target="+to.url(path), fmt.Sprintf("--jobs=%d", l.Sizes.BurstJobs), fmt.Sprintf("--workers=%d", riverWorkers))
	if err != nil {
		return result, err
	}
	l.processes = append(l.processes, p)
	defer func() { // while it is under way only when ctx has ended
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		_ = p.Stop(ctx)
	}()
	return l.timed(ctx, p.Wait, p.Output, to, path)
}
