package httpapi

import (
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"

	"punctual/httpapi/api"
	"punctual/httpapi/problem"
	"punctual/store/pg"
)

// headerAsOf says as of which instant an operation of the past was answered.
const headerAsOf = "Punctual-As-Of"

// readPast lets the reads of an operation go to the standby.
func (s *server) readPast(hc huma.Context, next func(huma.Context)) {
	r, w := humachi.Unwrap(hc)
	reading := pg.Reading{Told: func(at time.Time) { w.Header().Set(headerAsOf, at.Format(time.RFC3339Nano)) }}
	if since := r.Header.Get(problem.HeaderPosition); since != "" {
		var ok bool
		if reading.Since, ok = pg.ParsePosition(since); !ok {
			why := problem.At("header."+problem.HeaderPosition, "must be a position as a write returns it")
			s.api.Problem(hc.Context(), problem.Invalid(why), "").Write(w)
			return
		}
	}
	next(huma.WithContext(hc, reading.Within(hc.Context())))
}

// positioned tells writers how far a standby must be to know of their writes.
func (s *server) positioned(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if reads(r.Method) || !strings.HasPrefix(r.URL.Path, "/v1/") {
			next.ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(&positionWriter{ResponseWriter: w, position: func() pg.Position {
			return s.Store.Position(r.Context())
		}}, r)
	})
}

func reads(method string) bool { return method == http.MethodGet || method == http.MethodHead }

// positionWriter asks for the position when an answer begins: all that was written for it is committed then.
type positionWriter struct {
	http.ResponseWriter
	position func() pg.Position
	begun    bool
}

// WriteHeader implements http.ResponseWriter. A refused request has written nothing.
func (w *positionWriter) WriteHeader(status int) {
	if refused := status >= 400 && status < 500; !w.begun && !refused {
		w.Header().Set(problem.HeaderPosition, string(w.position()))
	}
	w.begun = true
	w.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (w *positionWriter) Write(part []byte) (int, error) {
	if !w.begun {
		w.WriteHeader(http.StatusOK)
	}
	return w.ResponseWriter.Write(part)
}

// Unwrap is for http.ResponseController.
func (w *positionWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// describePosition describes the headers by which callers know how old an answer may be.
func describePosition(op *api.Operation) {
	text := &huma.Schema{Type: huma.TypeString}
	add := func(response *huma.Response, name string, header *huma.Param) {
		if response.Headers == nil {
			response.Headers = map[string]*huma.Param{}
		}
		response.Headers[name] = header
	}
	for status, response := range op.Doc.Responses {
		if status[0] == '2' && !reads(op.Doc.Method) {
			add(response, problem.HeaderPosition, &huma.Param{Schema: text, Description: "Position of the write. Send it " +
				"with reads that have to see the write. Absent: there is no read database, and all reads see it."})
		}
	}
	if !op.Past {
		return
	}
	op.Doc.Parameters = append(op.Doc.Parameters, &huma.Param{
		Name: problem.HeaderPosition, In: "header", Schema: text, Example: "16/B374D848",
		Description: "The position that a write returned: the answer knows of that write. Absent: the answer may be as " +
			"old as the deployment's --max-staleness.",
	})
	add(op.Doc.Responses["200"], headerAsOf, &huma.Param{
		Schema: &huma.Schema{Type: huma.TypeString, Format: "date-time"},
		Description: "The instant as of which the answer was read, if a read database may answer. Absent: the answer is " +
			"of now.",
	})
}
