package command

import (
	"log/slog"
	"os"
	"time"

	"github.com/lmittmann/tint"
)

func newLog(level slog.Level, format string) *slog.Logger {
	if format == "json" {
		return slog.New(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: level, ReplaceAttr: inSeconds}))
	}
	terminal, err := os.Stderr.Stat()
	plain := err != nil || terminal.Mode()&os.ModeCharDevice == 0 || os.Getenv("NO_COLOR") != ""
	return slog.New(tint.NewTextHandler(os.Stderr, &tint.Options{Level: level, TimeFormat: time.DateTime, NoColor: plain}))
}

// inSeconds writes a duration as a number of seconds, under a name with the unit: took_s. slog would write nanoseconds.
func inSeconds(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() != slog.KindDuration {
		return a
	}
	return slog.Float64(a.Key+"_s", a.Value.Duration().Seconds())
}
