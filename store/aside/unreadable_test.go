package aside

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
)

func TestOnlyARowThatCannotBeReadIsFound(t *testing.T) {
	hangs := uuid.MustParse("019ae0f2-7b3c-7d21-8e55-2f6a9c0d1e47")
	within := func(id, first, last uuid.UUID) bool {
		return bytes.Compare(first[:], id[:]) <= 0 && bytes.Compare(id[:], last[:]) <= 0
	}
	for name, tt := range map[string]struct {
		slow func(limit time.Duration, first, last uuid.UUID) bool
		want uuid.UUID
	}{
		"one row":       {func(_ time.Duration, first, last uuid.UUID) bool { return within(hangs, first, last) }, hangs},
		"none":          {func(time.Duration, uuid.UUID, uuid.UUID) bool { return false }, uuid.Nil},
		"all takes 3 s": {func(limit time.Duration, _, _ uuid.UUID) bool { return limit < 3*time.Second }, uuid.Nil},
		"many rows":     {func(_ time.Duration, first, last uuid.UUID) bool { return first[0] < 1 && last[0] > 2 }, uuid.Nil},
	} {
		t.Run(name, func(t *testing.T) {
			id, found := unreadable(t.Context(), func(limit time.Duration, first, last uuid.UUID) error {
				if tt.slow(limit, first, last) {
					return context.DeadlineExceeded
				}
				return nil
			})
			if id != tt.want && found || found != (tt.want != uuid.Nil) {
				t.Errorf("found %t, %s", found, id)
			}
		})
	}
}
