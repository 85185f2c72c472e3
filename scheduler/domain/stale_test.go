package domain

import (
	"testing"
	"time"

	"punctual/scheduler/jobspec"
)

func TestWhenAJobIsStale(t *testing.T) {
	now := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	ago := func(hours int) time.Time { return now.Add(-time.Duration(hours) * time.Hour) }
	const expect = 26 * time.Hour
	staleAt := func(hours int) time.Time { return ago(hours).Add(expect) }
	var none time.Time
	for name, test := range map[string]struct {
		watch Watch
		since time.Time // since when the job is stale; none: it is not
		look  time.Time // when to look again; none: never
	}{
		"new":                       {Watch{Kind: jobspec.KindCron, Begun: ago(1)}, none, staleAt(1)},
		"never succeeded":           {Watch{Kind: jobspec.KindCron, Begun: ago(27)}, ago(27), none},
		"to the hour":               {Watch{Kind: jobspec.KindCron, Begun: ago(26)}, ago(26), none},
		"succeeded lately":          {Watch{Kind: jobspec.KindEvery, Begun: ago(100), LastSuccess: ago(2)}, none, staleAt(2)},
		"succeeded long ago":        {Watch{Kind: jobspec.KindNone, Begun: ago(100), LastSuccess: ago(50)}, ago(50), none},
		"resumed lately":            {Watch{Kind: jobspec.KindCron, Begun: ago(3), LastSuccess: ago(50)}, none, staleAt(3)},
		"not begun yet":             {Watch{Kind: jobspec.KindCron, Begun: ago(50), StartsAt: ago(-5)}, none, staleAt(-5)},
		"paused":                    {Watch{Kind: jobspec.KindCron, Begun: ago(50), Paused: true}, none, staleAt(0)},
		"at its end":                {Watch{Kind: jobspec.KindCron, Begun: ago(50), Completed: true}, none, none},
		"a one-shot before its day": {Watch{Kind: jobspec.KindAt, Begun: ago(500), DueAt: ago(-100)}, none, staleAt(-100)},
		"a one-shot that failed":    {Watch{Kind: jobspec.KindAt, Begun: ago(500), DueAt: ago(30), Completed: true}, ago(30), none},
		"a one-shot that succeeded": {
			Watch{Kind: jobspec.KindDelay, Begun: ago(500), DueAt: ago(300), LastSuccess: ago(300), Completed: true}, none, none,
		},
	} {
		t.Run(name, func(t *testing.T) {
			test.watch.Expect, test.watch.Now = expect, now
			stale, since, look := test.watch.Judge()
			if stale != !test.since.IsZero() || stale && !since.Equal(test.since) || !look.Equal(test.look) {
				t.Errorf("stale %t since %s, look again %s", stale, since, look)
			}
			test.watch.Expect = 0
			if stale, _, look := test.watch.Judge(); stale || !look.IsZero() {
				t.Error("a job that expects nothing is looked at")
			}
		})
	}
}
