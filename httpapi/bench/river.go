package bench

import (
	"context"
	"fmt"
	"net/url"

	"punctual/httpapi/proc"
)

// riverWorkers is how many jobs River works at a time.
const riverWorkers = 256

// river lets a program work the burst with River: PROGRAM --database-url=… --url=… --jobs=N --workers=N. It is to
// insert that many jobs, each of which posts the burst's body to the URL, start to work them when all are there, and
// write {"seconds":…} as its last line: from the start to the last job's end. Its tables lie in the search path of the
// database URL, which is the scratch schema, and go with that.
func (l *lab) river(ctx context.Context, to *target, path string) (perSecond float64, err error) {
	dsn, err := within(l.db.dsn, "punctual")
	if err != nil {
		return 0, err
	}
	p, err := proc.Launch(l.River, nil, "--database-url="+dsn, "--url="+to.url(path), fmt.Sprintf("--jobs=%d", l.Sizes.BurstJobs), fmt.Sprintf("--workers=%d", riverWorkers))
	if err != nil {
		return 0, err
	}
	l.processes = append(l.processes, p)
	result, err := l.timed(ctx, p.Wait, p.Output, to, path)
	return float64(l.Sizes.BurstJobs) / result.Seconds, err
}

// within adds a search path to a database URL.
func within(dsn, schema string) (string, error) {
	u, err := url.Parse(dsn)
	if err != nil || u.Scheme == "" {
		return dsn + " search_path=" + schema, nil //nolint:nilerr // key=value, then
	}
	q := u.Query()
	q.Set("search_path", schema)
	u.RawQuery = q.Encode()
	return u.String(), nil
}
