package archive

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"io"
	"reflect"
	"slices"
	"strings"

	"github.com/google/uuid"
)

// format is the version of the form of archives. It is 2 once a reader of this form cannot read them.
const format = 1

// header is the first line of an archive.
type header struct {
	Format     int       `json:"punctual_archive"`
	Day        string    `json:"day"`
	Part       int       `json:"part"`
	TimeZone   string    `json:"time_zone"`
	Deployment uuid.UUID `json:"deployment"`
	Database   string    `json:"database"`
	Version    string    `json:"version"`
}

// trailer is the last line. The checksum is of all bytes before that line.
type trailer struct {
	End      bool   `json:"end"`
	Versions int64  `json:"versions"`
	Runs     int64  `json:"runs"`
	Attempts int64  `json:"attempts"`
	Data     int64  `json:"data"`
	SHA256   string `json:"sha256"`
}

// line is any line between them: a version of a job, or a run. They have the columns of the tables, so they hold
// secrets only as the tables do: sealed, or as ***.
type line struct {
	Version  json.RawMessage   `json:"version,omitempty"`
	Job      string            `json:"job,omitempty"`    // the job's name, for people
	Tenant   string            `json:"tenant,omitempty"` // the tenant's name, for people
	Run      json.RawMessage   `json:"run,omitempty"`
	Attempts []json.RawMessage `json:"attempts,omitempty"`
	Data     json.RawMessage   `json:"data,omitempty"`
	// The body that the run itself has: a string, or bytes that are no text.
	Body       *string `json:"body,omitempty"`
	BodyBase64 []byte  `json:"body_base64,omitempty"`
}

// exact returns an error if a line has a member twice, or one that is none of a line's. Two parsers could read the same
// line in two ways: encoding/json ignores the case of names, and Postgres does not.
func exact(text []byte) error {
	var known []string
	for _, f := range reflect.VisibleFields(reflect.TypeFor[line]()) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		known = append(known, name)
	}
	d := json.NewDecoder(bytes.NewReader(text))
	if _, err := d.Token(); err != nil {
		return err
	}
	for d.More() {
		token, err := d.Token()
		if err != nil {
			return err
		}
		name, _ := token.(string)
		i := slices.Index(known, name)
		if i < 0 {
			return fmt.Errorf("has %q twice, or it is not a member of a line", name)
		}
		known = slices.Delete(known, i, i+1)
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return err
		}
	}
	return nil
}

// textColumns of run_data are JSON texts that Postgres keeps as they are. In an archive they are strings, as they may
// have several lines.
var textColumns = []string{"progress", "result"}

// plainColumns are the other columns of run_data but run_id and body.
var plainColumns = []string{
	"webhook_id", "headers", "idempotency_key", "progress_at", "result_note", "response", "response_headers",
	"response_truncated", "response_fence", "key", "note", "expires_after", "chains", "traceparent", "template",
}

// each writes an expression for each column, with % in place of its name.
func each(columns []string, expression string) string {
	list := make([]string, len(columns))
	for i, c := range columns {
		list[i] = strings.ReplaceAll(expression, "%", c)
	}
	return strings.Join(list, ", ")
}

// writer writes the lines of an archive, and counts them.
type writer struct {
	to    *bufio.Writer
	sum   hash.Hash
	bytes int64
	trailer
}

func newWriter(to io.Writer) *writer {
	return &writer{to: bufio.NewWriterSize(to, 1<<16), sum: sha256.New()}
}

func (w *writer) line(v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	text = append(text, '\n')
	w.sum.Write(text)
	w.bytes += int64(len(text))
	_, err = w.to.Write(text)
	return err
}

// end writes the last line.
func (w *writer) end() error {
	w.End, w.SHA256 = true, hex.EncodeToString(w.sum.Sum(nil))
	if err := w.line(w.trailer); err != nil {
		return err
	}
	return w.to.Flush()
}
