package cron_test

import (
	"fmt"
	"time"

	"punctual/scheduler/cron"
)

func Example() {
	e, err := cron.Parse("30 2 * * *")
	if err != nil {
		fmt.Println(err)
		return
	}
	zone, err := cron.LoadZone("America/New_York")
	if err != nil {
		fmt.Println(err)
		return
	}
	at := time.Date(2026, time.March, 7, 0, 0, 0, 0, zone)
	for range 3 {
		slot, ok := e.Next(at, zone)
		if !ok {
			break
		}
		line := slot.At.In(zone).Format("Mon 2 Jan 15:04 MST")
		if slot.Note.Kind != cron.Ordinary {
			line += ": " + slot.Note.String()
		}
		fmt.Println(line)
		at = slot.At
	}
	// Output:
	// Sat 7 Mar 02:30 EST
	// Sun 8 Mar 03:30 EDT: 02:30 does not exist on this day; moved to 03:30
	// Mon 9 Mar 02:30 EDT
}

func ExampleParse() {
	for _, expr := range []string{"70/5 * * * *", "0 0 30 2 *", "@every 5m"} {
		_, err := cron.Parse(expr)
		fmt.Println(err)
	}
	// Output:
	// minute: "70/5": 70 is outside 0-59
	// day of month: "30": no such day ever comes in month 2; a job without a schedule runs only when it is triggered
	// expression: "@every 5m": @every is not a cron expression; use an "every" schedule
}

// After an outage, search backwards from now to find the newest missed slot.
func ExampleExpression_Prev() {
	e := cron.MustParse("*/5 * * * *")
	now := time.Date(2026, time.May, 1, 12, 34, 56, 0, time.UTC)
	if slot, ok := e.Prev(now, time.UTC); ok {
		fmt.Println(slot.At)
	}
	// Output: 2026-05-01 12:30:00 +0000 UTC
}

func ExampleLoadZone() {
	_, err := cron.LoadZone("europe/berlin")
	fmt.Println(err)
	// Output: time zone "europe/berlin" is unknown; did you mean "Europe/Berlin"?
}
