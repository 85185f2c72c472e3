package domain

import "testing"

// BenchmarkCompile measures compiling a definition. Most definitions are compiled for one claim and kept for the next.
func BenchmarkCompile(b *testing.B) {
	for _, bm := range []struct{ name, text string }{
		{
			"at",
			`{"schedule":{"at":"2026-12-01T09:00:00Z"},"target":{"url":"http://127.0.0.1:9/hook","body":{"range":"yesterday"}}}`,
		},
		{
			"cron",
			`{"schedule":{"cron":"0 3 * * mon-fri","timezone":"Europe/Berlin"},"target":{"url":"http://127.0.0.1:9/hook","body":{"range":"yesterday"}}}`,
		},
	} {
		d := definition(b, bm.text)
		b.Run(bm.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Compile(jobID, 1, 1, d, 0); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkRequest measures making an attempt's request. A job without placeholders must not pay for placeholders.
func BenchmarkRequest(b *testing.B) {
	for _, bm := range []struct{ name, text string }{
		{
			"plain",
			`{"name":"job","target":{"url":"http://127.0.0.1:9/hook","headers":{"X-Key":"1"},"body":{"range":"yesterday"}}}`,
		},
		{
			"placeholders",
			`{"name":"job","target":{"url":"http://127.0.0.1:9/hook/{{scheduled_for|date}}","headers":{"X-Key":"{{run}}"},"body":{"range":"{{scheduled_for|date}}"}}}`,
		},
	} {
		a := Assignment{RunID: jobID, Job: compiled(b, bm.text), Trigger: TriggerSchedule, Attempt: 1, Fence: 1}
		b.Run(bm.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_ = a.Request(Origin{})
			}
		})
	}
}
