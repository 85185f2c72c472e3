package days

import (
	"testing"
	"time"
)

func TestATextIsWrittenAnewForAnotherWindow(t *testing.T) {
	n := 0
	text := Text{Write: func(w Window) string { n++; return w.On(`id`) }}
	day := func(now time.Time) Window { return Window{From: dayOf(now)} }
	noon := dayOf(time.Now()).Add(12 * time.Hour)
	for _, w := range []Window{
		day(noon), day(noon.Add(time.Second)), day(noon.AddDate(0, 0, 1)), day(noon.AddDate(0, 0, 1).In(time.Local)),
		day(noon),
	} {
		if got := text.In(w); got != w.On(`id`) {
			t.Errorf("the text of %+v is %s", w, got)
		}
	}
	if n != 3 {
		t.Errorf("it was written %d times, want 3", n)
	}
}

func TestAWindowThatEndsTomorrowIsOverThen(t *testing.T) {
	w := Near()
	for after, over := range map[time.Duration]bool{0: false, 23 * time.Hour: false, 48 * time.Hour: true} {
		if got := w.Over(time.Now().Add(after)); got != over {
			t.Errorf("in %s it is over: %t", after, got)
		}
	}
	if Recent().Over(time.Now().AddDate(1, 0, 0)) {
		t.Error("a window without an end is over")
	}
}
