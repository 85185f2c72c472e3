// Package cron says when a job is due. It validates cron expressions, and finds the slots before and after an instant
// by the wall clock of a time zone.
//
//	e, err := cron.Parse("30 2 * * mon-fri")
//	zone, err := cron.LoadZone("America/New_York")
//	slot, ok := e.Next(after, zone)
//
// # Expressions
//
// Five fields, or six with leading seconds, separated by spaces or tabs; at most 256 bytes of ASCII, in either case.
//
//	field         values  also
//	second        0-59
//	minute        0-59
//	hour          0-23
//	day of month  1-31    ?  L (last day)  L-2 (two days before it)  LW (last day from Monday to Friday)
//	                         15W (day from Monday to Friday nearest to the 15th, in the same month)
//	month         1-12    JAN-DEC
//	day of week   0-7     ?  SUN-SAT  5L (last Friday)  5#2 (second Friday); 0 and 7 are Sunday
//
// Each field is a list, separated by commas, of *, n, n-m, and any of these with a /step; n/step runs from n to the
// end. L-n is from L-1 to L-30; L-30 fires in months of 31 days only. A step is at most the number of values the field
// has, so that "*/90" is an error and not a surprise. Ranges must ascend; FRI-SUN counts as ascending. "?" means "*".
// The abbreviations are @yearly, @annually, @monthly, @weekly, @daily, @midnight, @hourly.
//
// If both day fields are restricted, either may match: "0 0 13 * fri" fires on every 13th and on every Friday. But if
// one of them starts with *, both must match: "0 0 */2 * mon" fires on Mondays with an odd date. That is Vixie cron's
// rule.
//
// Whatever is not in this grammar is an error that names the field; [Meant] translates what other systems write. An
// expression that can never fire is an error too.
//
// # Clock changes
//
// An expression whose hour field matches all 24 hours is an interval: it fires at every real instant at which the wall
// clock matches. "*/15 * * * *" never pauses and never doubles back, and when an hour comes twice, it fires in both.
//
// Every other expression is fixed: it fires once for each wall-clock time that it names.
//
//   - A time that does not exist, because the clock was put forward over it, moves forward by as much as the clock did:
//     02:30 becomes 03:30. If there is a slot at that instant anyway, the two are one.
//   - A time that occurs twice, because the clock was put back, counts the first time.
//
// The rule does not depend on hours, seasons or midnight. It holds for Lord Howe Island, whose clocks move by half an
// hour; for Havana and Santiago, where midnight may not exist; for Samoa, which had no 30 December 2011; and for
// zones that changed their rules. A [Note] on the slot says what happened to it.
//
// The zone data is part of the binary, see [ZoneData]. The machine's own is used only if [UseZoneData] is told to.
//
// # How it works
//
// Three questions are kept apart. On which day does it fire? A table of 28 kinds of months answers that (calendar.go).
// At what time by the wall clock? The masks of the hours, minutes and seconds answer that (wall.go). Which instant is
// that? The periods between the changes of a zone's clock answer that (period.go, next.go).
//
// Between finds many slots at a time by counting through the days, hours, minutes and seconds that match (between.go).
// Near a change of the clock it asks Next.
//
// gronx calculates the times of day a second time, whenever an expression is written (crosscheck.go). It is given
// nothing but the numbers of a time of day and a clock that never changes.
package cron
