package cron

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var benchSlot = time.Date(2026, 3, 2, 9, 0, 0, 0, time.UTC)

func BenchmarkNextAlone(b *testing.B) {
	for _, expr := range []string{
		"* * * * *",
		"*/15 * * * *",
		"0 3 * * mon-fri",
		"30 2 1 * *",
		"59 59 23 31 12 *",
		"0 0 29 2 sun",
		"0 0 29 2 */7",
		"* * 29 2 */7",
		"0 0 31W 2 1#5",
		"0 9 L * 5L",
		"0,2,5,6,9,11,14,15,18,23,27,31,35,40,44,47,51,58 0,2,5,6,9,11,14,15,18,23,27,31,35,40,44,47,51,58 1,4,6,9,15,20,23 1,4,6,9,15,20,23 1,3,4,9,11 *",
	} {
		b.Run(expr, func(b *testing.B) {
			e, zone := MustParse(expr), mustZone(b, "America/New_York")
			after := benchSlot
			for b.Loop() {
				slot, ok := e.Next(after, zone)
				if !ok {
					b.Fatal("never")
				}
				if after = slot.At; after.Year() > 2400 {
					after = benchSlot
				}
			}
		})
	}
}

func BenchmarkPrevAlone(b *testing.B) {
	e, zone := MustParse("*/5 * * * *"), mustZone(b, "America/New_York")
	for b.Loop() {
		e.Prev(benchSlot, zone)
	}
}

// BenchmarkNextHerd computes the next slots of 10,000 jobs that share 50 expressions and are all due at the same slot,
// as one claim after another does. The figure to look at is ns/fire.
func BenchmarkNextHerd(b *testing.B) {
	zone := mustZone(b, "Europe/Berlin")
	const fires, kinds = 10_000, 50
	expressions := make([]*Expression, kinds)
	for i := range expressions {
		expressions[i] = MustParse(fmt.Sprintf("0 %d-%d * * *", i%10, 10+i/10))
	}
	for b.Loop() {
		var memo Memo
		for i := range fires {
			if _, ok := memo.Next(expressions[i%kinds], benchSlot, zone); !ok {
				b.Fatal("never")
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/fires, "ns/fire")
}

// BenchmarkNextOfItsOwn computes the next slots of 5,000 jobs that are all due at the same slot, each with an
// expression of its own.
func BenchmarkNextOfItsOwn(b *testing.B) {
	zone := mustZone(b, "Europe/Berlin")
	const fires = 5_000
	expressions := make([]*Expression, fires)
	for i := range expressions {
		expressions[i] = MustParse(fmt.Sprintf("0 %d-59/%d %d,10,%d * * mon-fri", i%60, 1+i/60%12, i/720, 17+i/720))
	}
	for b.Loop() {
		var memo Memo
		for _, e := range expressions {
			if _, ok := memo.Next(e, benchSlot, zone); !ok {
				b.Fatal("never")
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/fires, "ns/fire")
}

func BenchmarkCrossCheck(b *testing.B) {
	for _, expr := range []string{"* * * * *", "0 3 * * mon-fri", "59 59 23 31 12 *"} {
		b.Run(expr, func(b *testing.B) {
			e := MustParse(expr)
			for b.Loop() {
				agreed.Purge()
				if err := e.CrossCheck(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkParse(b *testing.B) {
	for b.Loop() {
		if _, err := parseAnew("*/15 9-17 1,15,L * mon-fri"); err != nil {
			b.Fatal(err)
		}
	}
}

func mustZone(tb rapid.TB, name string) *time.Location {
	tb.Helper()
	zone, err := LoadZone(name)
	if err != nil {
		tb.Fatal(err)
	}
	return zone
}
