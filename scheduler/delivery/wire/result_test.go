package wire

import (
	"testing"
	"time"
)

func TestTimeoutsAreWrittenAsPeopleWriteThem(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		30 * time.Second: "30s", 10 * time.Minute: "10m", 24 * time.Hour: "24h", 90 * time.Minute: "1h30m",
		90 * time.Second: "1m30s", 150 * time.Millisecond: "150ms",
	} {
		if got := Short(d); got != want {
			t.Errorf("%s is written %q, want %q", d, got, want)
		}
	}
}
