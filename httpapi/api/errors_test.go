package api

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"punctual/httpapi/problem"
	"punctual/scheduler/jobspec"
	"punctual/store/pg"
)

// A caller may try again what was not done because of the state of the database or of a session, and only that.
func TestWhatWasNotDoneCanBeTriedAgain(t *testing.T) {
	t.Parallel()
	for want, codes := range map[problem.Code][]string{
		problem.CodeDatabase: {
			"08006", "25006", "25P03", "25P04", "26000", "40001", "40P01", "53100", "53200", "53300", "55000", "55006",
			"57P01", "57P05", "58030",
		},
		problem.CodeInternal: {"0A000", "22P02", "23505", "42501", "42601", "42P01", "XX000", ""},
	} {
		for _, code := range codes {
			p := ProblemOf(t.Context(), fmt.Errorf("reading: %w", &pgconn.PgError{Code: code}), "")
			if p.Code != want {
				t.Errorf("SQLSTATE %s is answered %s, want %s", code, p.Code, want)
			}
		}
	}
	if p := ProblemOf(t.Context(), fmt.Errorf("reading: %w", context.DeadlineExceeded), ""); p.Code != problem.CodeTimeout {
		t.Errorf("a caller whom the database did not answer in time is answered %s", p.Code)
	}
	if p := ProblemOf(t.Context(), fmt.Errorf("reading: %w", &pg.BusyError{}), ""); p.Code != problem.CodeBusy {
		t.Errorf("a caller that waited for a connection is answered %s", p.Code)
	}
}

// A fault of Punctual's own is said to the caller, and stands in the log as an error.
func TestACronInDoubtIsNeverSilent(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	a := &API{Log: slog.New(slog.NewTextHandler(&log, nil))}
	doubt := &jobspec.Refusal{Code: jobspec.CodeCronMismatch, Around: true, Reason: "of 0 3 * * *, 03:00 or 04:00"}
	p := a.Problem(t.Context(), fmt.Errorf("jobs[7]: %w", doubt), "")
	if p.Code != problem.CodeCronMismatch || p.Status != http.StatusInternalServerError ||
		p.Detail != "Jobs[7]: of 0 3 * * *, 03:00 or 04:00." {
		t.Errorf("the caller is told %d %s: %s", p.Status, p.Code, p.Detail)
	}
	if !strings.Contains(log.String(), "level=ERROR") || !strings.Contains(log.String(), "03:00 or 04:00") {
		t.Errorf("the log says: %s", &log)
	}
}
