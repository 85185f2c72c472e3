package scheduler

import "testing"

// BenchmarkCompile makes a definition ready to use. Most are compiled for one claim and then kept for the next.
func BenchmarkCompile(b *testing.B) {
	for _, bm := range []struct{ name, text string }{
		{"at", `{"schedule":{"at":"2026-12-01T09:00:00Z"},"target":{"url":"http://127.0.0.1:9/hook","body":{"range":"yesterday"}}}`},
		{"cron", `{"schedule":{"cron":"0 3 * * mon-fri","timezone":"Europe/Berlin"},"target":{"url":"http://127.0.0.1:9/hook","body":{"range":"yesterday"}}}`},
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
