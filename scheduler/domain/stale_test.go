package domain

import (
	"testing"
	"time"
)

func TestWhenAJobIsStale(t *testing.T) {
	now := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	ago := func(hours int) time.Time { return now.Add(-time.Duration(hours) * time.Hour) }
	const expect = 26 * time.Hour
	for name, test := range map[string]struct {
		watch Watch
		since time.Time // since when the job is stale; zero: it is not
		look  time.Time // when to look again; zero: never
	}{
		"new":             {Watch{Kind: KindCron, Begun: ago(1)}, time.Time{}, ago(1).Add(expect)},
		"never succeeded": {Watch{Kind: KindCron, Begun: ago(27)}, ago(27), time.Time{}},
		"to the hour":     {Watch{Kind: KindCron, Begun: ago(26)}, ago(26), time.Time{}},
		"succeeded lately": {
			Watch{Kind: KindEvery, Begun: ago(100), LastSuccess: ago(2)}, time.Time{}, ago(2).Add(expect),
		},
		"succeeded long ago": {Watch{Kind: KindNone, Begun: ago(100), LastSuccess: ago(50)}, ago(50), time.Time{}},
		"resumed lately": {
			Watch{Kind: KindCron, Begun: ago(3), LastSuccess: ago(50)}, time.Time{}, ago(3).Add(expect),
		},
		"not begun yet": {
			Watch{Kind: KindCron, Begun: ago(50), StartsAt: ago(-5)}, time.Time{}, ago(-5).Add(expect),
		},
		"paused":     {Watch{Kind: KindCron, Begun: ago(50), Paused: true}, time.Time{}, now.Add(expect)},
		"at its end": {Watch{Kind: KindCron, Begun: ago(50), Completed: true}, time.Time{}, time.Time{}},
		"a one-shot before its day": {
			Watch{Kind: KindAt, Begun: ago(500), DueAt: ago(-100)}, time.Time{}, ago(-100).Add(expect),
		},
		"a one-shot that failed": {
			Watch{Kind: KindAt, Begun: ago(500), DueAt: ago(30), Completed: true}, ago(30), time.Time{},
		},
		"a one-shot that succeeded": {
			Watch{Kind: KindDelay, Begun: ago(500), DueAt: ago(300), LastSuccess: ago(300), Completed: true},
			time.Time{},
			time.Time{},
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
