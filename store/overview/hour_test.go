package overview

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"punctual/scheduler/domain"
)

var ten = time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC)

// at returns an instant of the hour from ten on, or of a later one.
func at(minutes float64) time.Time { return ten.Add(time.Duration(minutes * float64(time.Minute))) }

func id(minutes float64) *uuid.UUID { return new(domain.FirstRunID(at(minutes))) }

func TestWhatIsCountedNext(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name          string
		hour          hour
		now           time.Time
		anew          bool
		after, before float64 // minutes past ten
	}{
		{"a new hour is counted up to a minute ago", hour{}, at(5), true, 0, 4},
		{"in its first minute there is nothing to count", hour{}, at(0.5), true, 0, -0.5},
		{
			"a small hour is counted anew",
			hour{round: 3, shown: 3, countedAt: new(at(4)), through: id(3), runs: 99},
			at(5), true, 0, 4,
		},
		{
			"a large hour goes on",
			hour{round: 3, shown: 3, countedAt: new(at(4)), through: id(3), runs: 100},
			at(5), false, 3, 4,
		},
		{
			"a round that is under way goes on",
			hour{round: 4, shown: 3, countedAt: new(at(65)), through: id(30), runs: 50},
			at(66), false, 30, 60,
		},
		{
			"also if the clock was set back meanwhile",
			hour{round: 4, shown: 3, countedAt: new(at(90)), through: id(30), runs: 50},
			at(66), false, 30, 60,
		},
		{
			"a round that has counted nothing yet goes on from the beginning",
			hour{round: 4, shown: 3, countedAt: new(at(65)), runs: 0},
			at(66), false, 0, 60,
		},
		{
			"a large hour that is over is counted to its end",
			hour{round: 3, shown: 3, countedAt: new(at(60)), through: id(59), runs: 500},
			at(61.5), false, 59, 60,
		},
		{
			"and then anew",
			hour{round: 3, shown: 3, countedAt: new(at(61.5)), through: id(60), runs: 500},
			at(66), true, 0, 60,
		},
		{
			"an hour of the future was counted before the clock was set back",
			hour{round: 3, shown: 3, countedAt: new(at(40)), through: id(39), runs: 500},
			at(5), true, 0, 4,
		},
	} {
		tt.hour.begin, tt.hour.batch = ten, 100
		got := tt.hour.task(tt.now)
		if want := (task{tt.anew, *id(tt.after), *id(tt.before)}); got != want {
			t.Errorf("%s: %+v, want %+v", tt.name, got, want)
		}
	}
}

func TestWhenAnHourIsCountedAgain(t *testing.T) {
	t.Parallel()
	never := time.Time{}
	for _, tt := range []struct {
		name    string
		through float64
		runs    int64
		unended int64
		oldest  *time.Time
		now     time.Time
		want    time.Time
	}{
		{"while it lasts, each minute", 4, 10, 0, nil, at(5), at(5).Add(every)},
		{"once it is over, after five minutes", 60, 10, 0, nil, at(61.2), at(65)},
		{"then after an hour", 60, 500, 0, nil, at(65.1), at(120)},
		{"a small hour then after four", 60, 99, 0, nil, at(120.1), at(300)},
		{"a large one not", 60, 100, 0, nil, at(120.1), never},
		{"but if runs of it have not ended", 60, 100, 1, nil, at(120.1), at(300)},
		{"or slots of it are still due", 60, 100, 0, new(at(59)), at(120.1), at(300)},
		{"but not if later ones are", 60, 100, 0, new(at(60)), at(120.1), never},
		{"for the last time after a day", 60, 10, 1, nil, at(1000), at(60 + 24*60)},
		{"and not once it is shown no more", 60, 10, 1, nil, at(60 + 24*60), never},
		{"one that nobody counted in time is next looked at as if somebody had", 60, 10, 0, nil, at(200), at(300)},
	} {
		h := hour{begin: ten, batch: 100, through: id(tt.through), runs: tt.runs, unended: tt.unended}
		got := h.next(tt.now, tt.oldest)
		if got == nil {
			got = &never
		}
		if !got.Equal(tt.want) {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

func TestARoundIsShownOnceItIsComplete(t *testing.T) {
	t.Parallel()
	h := hour{begin: ten, batch: 100, round: 1, shown: 1, countedAt: new(at(61)), through: id(60), runs: 250, unended: 7}
	now := at(66)
	task := h.task(now)
	h = h.add(task, counted{runs: 100, unended: 2, last: id(20)}, now, nil)
	if h.round != 2 || h.shown != 1 || h.runs != 100 || h.unended != 2 || *h.through != *id(20) ||
		!h.countedAt.Equal(at(61)) || !h.nextAt.Equal(now) {
		t.Errorf("after a first batch: %+v", h)
	}
	task = h.task(now)
	if h = h.add(task, counted{runs: 100, unended: 1, last: id(50)}, now, nil); h.shown != 1 || h.runs != 200 {
		t.Errorf("after a second batch: %+v", h)
	}
	task = h.task(now)
	h = h.add(task, counted{runs: 50}, now, nil)
	if h.round != 2 || h.shown != 2 || h.runs != 250 || h.unended != 3 || *h.through != *id(60) ||
		!h.countedAt.Equal(now) || !h.nextAt.Equal(at(120)) {
		t.Errorf("at the end: %+v", h)
	}
}
